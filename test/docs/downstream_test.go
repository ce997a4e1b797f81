package docs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/internal/app/dev/devtest"
	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/parts/partstest"
	"github.com/skeinhq/skein/test/process"
)

// downstream is what others have of a Skein.
type downstream struct {
	t      *testing.T
	text   string // of docs/downstream.md
	server *dev.Server
	client *client.Client
}

func startDownstream(t *testing.T) *downstream {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "downstream.md"))
	if err != nil {
		t.Fatal(err)
	}
	server := devtest.Start(t)
	return &downstream{t, string(text), server, devtest.Client(t, server.URL())}
}

// blocks are those of a section, in a language.
func (d *downstream) blocks(section, language string) (blocks []string) {
	d.t.Helper()
	_, rest, _ := strings.Cut(d.text, "\n## "+section+"\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	for _, found := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(rest, -1) {
		blocks = append(blocks, found[1])
	}
	if len(blocks) == 0 {
		d.t.Fatalf("the section %q has no block of %s", section, language)
	}
	return blocks
}

// publish sends events of a run, with its first one.
func (d *downstream) publish(thread, run string, events ...string) {
	d.t.Helper()
	body := fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, thread, run)
	for _, e := range events {
		body += "\n" + strings.ReplaceAll(strings.ReplaceAll(e, "THREAD", thread), "RUN-ID", run)
	}
	c := d.client.As(client.Producer{Agent: "planner"})
	if _, err := c.PostEvents(d.t.Context(), thread, run, client.TypeNDJSON, strings.NewReader(body)); err != nil {
		d.t.Fatal(err)
	}
}

const end = `{"type":"RUN_FINISHED","threadId":"THREAD","runId":"RUN-ID"}`

// records makes records of each kind on skein.runs, and returns them.
func (d *downstream) records() []*kgo.Record {
	d.t.Helper()
	d.publish("order 17/é", "tools", `{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}`, `{"type":"TEXT_MESSAGE_END","messageId":"m"}`,
		`{"type":"TOOL_CALL_START","toolCallId":"c1","toolCallName":"sea\"rch","parentMessageId":"m"}`, `{"type":"TOOL_CALL_END","toolCallId":"c1"}`,
		`{"type":"TOOL_CALL_START","toolCallId":"c2","toolCallName":"sea\"rch","parentMessageId":"m"}`, `{"type":"TOOL_CALL_END","toolCallId":"c2"}`,
		`{"type":"RUN_FINISHED","threadId":"THREAD","runId":"RUN-ID","usage":[{"model":"a","inputTokens":10,"outputTokens":3},{"model":"b","inputTokens":5}]}`)
	d.publish("order 17/é", "fails", `{"type":"RUN_ERROR","message":"no"}`)
	d.publish("late", "far", `{"type":"CUSTOM","name":"x","value":1,"timestamp":1515151515151515}`, `{"type":"RUN_FINISHED","threadId":"THREAD","runId":"RUN-ID","timestamp":1515151515151515}`)
	d.publish("open", "goes on")
	d.publish("gone", "erased", end)
	d.settle()
	if _, err := d.client.EraseThread(d.t.Context(), "gone"); err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.client.SetTitle(d.t.Context(), "late", "A title"); err != nil {
		d.t.Fatal(err)
	}
	d.settle()
	return kafkatest.Consume(d.t, d.server.Kafka(), d.server.Kafka().Topics().Runs)
}

func (d *downstream) settle() {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	if err := d.server.Settle(ctx); err != nil {
		d.t.Fatal(err)
	}
}

// Records have the kinds that the table names, and are JSON where it says so; run-id is on run records only.
func TestDownstream_NamesTheKinds(t *testing.T) {
	d := startDownstream(t)
	topic, told := "", map[string]string{} // value by kind, of skein.runs
	for _, row := range rows(t, d.text, "topic") {
		if row[0] != "" {
			topic = names(row[0])[0]
		}
		if topic == "skein.runs" {
			told[names(row[1])[0]] = row[2]
		}
	}
	seen := map[string]bool{}
	for _, r := range d.records() {
		kind := kafkatest.Header(r, record.HeaderKind)
		value, ok := told[kind]
		seen[kind] = true
		switch {
		case !ok:
			t.Errorf("the kind %q of %s is not told", kind, r.Key)
		case r.Value != nil && json.Valid(r.Value) != (value != "**no JSON**"):
			t.Errorf("%s of kind %s is %q, the table says %s", r.Key, kind, r.Value, value)
		case (kafkatest.Header(r, record.HeaderRunID) != "") != (kind == string(record.KindRun) && r.Value != nil):
			t.Errorf("%s of kind %s has the headers %v", r.Key, kind, r.Headers)
		}
	}
	if len(seen) != len(told) {
		t.Errorf("records were of the kinds %v, the table has %v", seen, told)
	}
}

func TestDownstream_ClickHouse(t *testing.T) {
	partstest.SkipShort(t, "ClickHouse's engine")
	db := clickhousetest.Start(t)
	conn := db.Open(t)
	exec := func(statement string) {
		t.Helper()
		if err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	d := startDownstream(t)
	blocks := d.blocks("ClickHouse", "sql")
	for i, statement := range strings.Split(strings.TrimSuffix(strings.TrimSpace(blocks[0]), ";"), ";\n") {
		if i == 0 {
			// It is parsed. What the engine's virtual columns are here stands in its documentation.
			exec("EXPLAIN AST " + statement)
			statement = "CREATE TABLE skein_queue (value String, _key String, _offset UInt64, _headers Nested(name String, value String)) ENGINE = Null"
		}
		exec(statement)
	}
	batch, err := conn.PrepareBatch(t.Context(), "INSERT INTO skein_queue (value, _key, _offset, `_headers.name`, `_headers.value`)")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]*record.Run{}
	for _, r := range d.records() {
		if r.Value == nil {
			delete(want, string(r.Key))
			continue // KafkaSource passes over them
		}
		var headers, values []string
		for _, h := range r.Headers {
			headers, values = append(headers, h.Key), append(values, string(h.Value))
		}
		if err := batch.Append(string(r.Value), string(r.Key), uint64(r.Offset), headers, values); err != nil {
			t.Fatal(err)
		}
		if kafkatest.Header(r, record.HeaderKind) == string(record.KindRun) {
			if want[string(r.Key)], err = record.DecodeRun(r.Value); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := batch.Send(); err != nil {
		t.Fatal(err)
	}
	count := func(query string) (n uint64) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count("SELECT count() FROM agent_runs FINAL WHERE thread_key = 'dev/gone'"); n != 1 {
		t.Errorf("%d rows of the erased thread are there to be deleted, want 1", n)
	}
	exec(strings.TrimSuffix(strings.TrimSpace(blocks[1]), ";"))
	rows, err := conn.Query(t.Context(), `SELECT tenant, thread_id, run_id, status, agent, started_at, ended_at, input_tokens, output_tokens,
		tool_calls, own_messages, thread_key, raw_first FROM agent_runs FINAL ORDER BY version`)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var tenant, thread, run, status, agent, key string
		var started, ended *time.Time
		var input, output, first int64
		var tools map[string]int64
		var messages []string
		err := rows.Scan(&tenant, &thread, &run, &status, &agent, &started, &ended, &input, &output, &tools, &messages, &key, &first)
		if err != nil {
			t.Fatal(err)
		}
		id, err := record.RunKey(tenant, thread, run)
		if err != nil {
			t.Fatal(err)
		}
		rec := want[id]
		if rec == nil {
			t.Errorf("there is a row of %s", id)
			continue
		}
		delete(want, id)
		var in, out int64
		for _, u := range rec.Stats.Usage {
			for sum, n := range map[*int64]*int64{&in: u.InputTokens, &out: u.OutputTokens} {
				if n != nil {
					*sum += *n
				}
			}
		}
		got := fmt.Sprint(status, agent, input, output, tools, len(messages), key, first, ended != nil || rec.EndedAt == nil)
		expected := fmt.Sprint(rec.Status, rec.Agent, in, out, map[string]int64(rec.Stats.ToolCalls), len(rec.Messages),
			strings.TrimSuffix(id, "/"+record.EscapeKeyPart(run)), rec.Raw.First, true)
		if got != expected {
			t.Errorf("%s has the row %s, want %s", id, got, expected)
		}
		if thread != "late" && (started == nil || !started.Equal(rec.StartedAt.Truncate(time.Millisecond))) {
			t.Errorf("%s began at %v, want %v", id, started, rec.StartedAt)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if len(want) > 0 {
		t.Errorf("there is no row of %v", want)
	}
}

var webhookCall = regexp.MustCompile(`go run \./examples/webhook \S+ (\S+) \S+ (\S+)\n`)

func TestDownstream_Webhook(t *testing.T) {
	partstest.SkipShort(t, "the example as a process")
	d := startDownstream(t)
	call := webhookCall.FindStringSubmatch(d.text)
	if call == nil {
		t.Fatal("the example's command is not told")
	}
	dir := t.TempDir()
	if err := process.Build(dir, nil, "../../examples/webhook"); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	refuse, refused, posted := false, 0, map[string]string{} // status by key
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e struct{ Tenant, ThreadID, RunID, Status, EndedAt string }
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &e)
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil || e.EndedAt == "" || r.Header.Get("Idempotency-Key") == "":
			t.Errorf("%s has the key %q (%v)", body, r.Header.Get("Idempotency-Key"), err)
		case r.URL.Path != "/":
			t.Errorf("%s was asked for: a redirect is no answer 2xx", r.URL)
		case refuse:
			refused++
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		default:
			posted[e.ThreadID+" "+e.RunID] = e.Status
		}
	}))
	defer receiver.Close()
	has := func(what string, ok func() bool) {
		t.Helper()
		process.Eventually(t, what, func() (string, bool) {
			mu.Lock()
			defer mu.Unlock()
			return fmt.Sprint(posted, refused), ok()
		})
	}
	start := func() *process.Process {
		t.Helper()
		p, err := process.Start(t, dir, filepath.Join(dir, "webhook"), d.server.Broker(), call[1], receiver.URL, call[2])
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	d.records()
	first := start()
	has("the ends are posted", func() bool {
		return posted["order 17/é tools"] == "finished" && posted["order 17/é fails"] == "error" && posted["late far"] == "finished" &&
			posted["gone erased"] == "finished" && posted["open goes on"] == ""
	})
	mu.Lock()
	refuse = true
	mu.Unlock()
	d.publish("next", "one", end)
	has("the receiver refuses", func() bool { return refused > 1 })
	first.End(os.Kill)
	mu.Lock()
	refuse = false
	clear(posted)
	mu.Unlock()
	d.publish("next", "two", end)
	start()
	has("it goes on", func() bool {
		return len(posted) == 2 && posted["next one"] == "finished" && posted["next two"] == "finished"
	})
}
