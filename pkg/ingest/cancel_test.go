package ingest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/logtest"
	"github.com/skeinhq/skein/pkg/ingest/agents"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

// runsOn answers with the start of a run, and goes on until its connection is closed.
func runsOn(w http.ResponseWriter, r *http.Request) {
	answers("data: "+begin+"\n\n")(w, r)
	<-r.Context().Done()
}

// proxies starts stages before one cluster and one agent that goes on for ever.
func proxies(t *testing.T, cfg Config, n int) []*behind {
	t.Helper()
	return inTurn(t, cfg, n, agents.Allow, runsOn)
}

// begins has a proxy hold a run of ingest's thread, and returns the stream behind its first line.
func (b *behind) begins(run string) *bufio.Reader {
	b.t.Helper()
	resp := b.start(b.t.Context(), run)
	b.t.Cleanup(func() { _ = resp.Body.Close() })
	read := bufio.NewReader(resp.Body)
	if line, err := read.ReadString('\n'); err != nil || resp.StatusCode != http.StatusOK {
		b.t.Fatalf("answer is %s, %q, %v", resp.Status, line, err)
	}
	return read
}

func (d *stage) cancel(run, body string, header ...string) (answer, cancelled) {
	d.t.Helper()
	a := d.do(http.MethodPost, strings.Replace(d.path("cancel"), "/runs/r1/", "/runs/"+run+"/", 1), strings.NewReader(body), header...)
	var c cancelled
	if a.status == http.StatusOK {
		if err := json.Unmarshal([]byte(a.body), &c); err != nil {
			d.t.Fatal(err)
		}
	}
	return a, c
}

// request is the first record of ingest's thread that asks for the run to be stopped.
func (d *stage) request(run string) *kgo.Record {
	d.t.Helper()
	for _, r := range d.records() {
		if h := headersOf(d.t, r); h.Kind == record.KindCancel && h.RunID == run {
			return r
		}
	}
	d.t.Fatal("there is no request")
	return nil
}

// last is the last record of ingest's thread of a kind.
func (d *stage) last(kind record.Kind) *kgo.Record {
	d.t.Helper()
	for _, r := range slices.Backward(d.records()) {
		if headersOf(d.t, r).Kind == kind {
			return r
		}
	}
	d.t.Fatalf("there is no record of kind %s", kind)
	return nil
}

func TestCancel_EndsARunThatAnotherProcessHolds(t *testing.T) {
	all := proxies(t, proxyConfig(t), 2)
	for i, by := range []int{1, 0} { // the other one, and the one that holds it
		run := fmt.Sprint("r", i)
		rest := all[0].begins(run)
		a, c := all[by].cancel(run, `{"reason":"enough ☕"}`, "Content-Type", "application/json")
		if a.status != http.StatusOK {
			t.Fatalf("answer is %d %s", a.status, a.body)
		}
		request, end := all[0].request(run), all[0].last(record.KindEvent)
		want := cancelled{
			ThreadID: "t1", RunID: run, Status: record.StatusCancelled, Synthetic: true,
			Position: record.Position{Partition: request.Partition, Offset: request.Offset},
			End:      record.Position{Partition: end.Partition, Offset: end.Offset},
		}
		if c != want {
			t.Errorf("answer is %s, want %+v", a.body, want)
		}
		if h := headersOf(t, request); h.RunID != run || string(request.Value) != `{"reason":"enough ☕"}` {
			t.Errorf("the request is %s with %+v", request.Value, h)
		}
		if h := headersOf(t, end); !h.Synthetic || h.RunID != run || !strings.Contains(string(end.Value), `"outcome":{"type":"cancelled"},"metadata":{"skein.stopped":{"reason":"enough ☕"}}`) {
			t.Errorf("the end is %s with %+v", end.Value, h)
		}
		text, err := io.ReadAll(rest)
		if err != nil || !strings.Contains(string(text), `"outcome":{"type":"cancelled"}`) {
			t.Errorf("the caller of the agent reads %q, %v", text, err)
		}
	}
}

// Runs of the same id in other threads and other runs of the thread go on.
func TestCancel_EndsNoOtherRun(t *testing.T) {
	b := proxies(t, testConfig(kafkatest.Start(t, 1)), 1)[0]
	b.begins("r1")
	b.begins("r2")
	other := &behind{stage: b.in(t, "t2"), agent: b.agent}
	other.begins("r1")
	if a, _ := b.cancel("r1", ""); a.status != http.StatusOK {
		t.Fatalf("answer is %d %s", a.status, a.body)
	}
	held := []string{}
	for _, p := range b.svc.runs.all() {
		if p.reasonCounts() {
			held = append(held, p.target.thread+" "+p.target.run)
		}
	}
	slices.Sort(held)
	if want := []string{"t1 r2", "t2 r1"}; !slices.Equal(held, want) {
		t.Errorf("runs that go on are %q, want %q", held, want)
	}
}

// reasonCounts reports whether the run goes on.
func (p *proxied) reasonCounts() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.ended
}

// A run that has ended by query, which is asked as the caller, is said to have ended at once. One that query may not know to go on, as its
// id was used again, as it ended behind the request or as it is only silent, is waited for.
func TestCancel_ARunThatHadEndedIsA409AtOnce(t *testing.T) {
	known := map[string]string{
		"/v1/threads/t1/runs/over":      `{"runId":"over","status":"finished","raw":{"next":0}}`,
		"/v1/threads/t1/runs/again":     `{"runId":"again","status":"finished","raw":{"next":0}}`,
		"/v1/threads/t1/runs/again~2":   `{"runId":"again~2","status":"running","raw":{"next":0}}`, // of an agent that calls it so
		"/v1/threads/t1/runs/again~3":   `{"runId":"again~3","clientRunId":"again","status":"error","raw":{"next":0}}`,
		"/v1/threads/t1/runs/reused":    `{"runId":"reused","status":"finished","raw":{"next":0}}`,
		"/v1/threads/t1/runs/reused~2":  `{"runId":"reused~2","clientRunId":"reused","status":"running","raw":{"next":0}}`,
		"/v1/threads/t1/runs/afterward": `{"runId":"afterward","status":"finished","raw":{"next":1000}}`,
		"/v1/threads/t1/runs/silent":    `{"runId":"silent","status":"abandoned","raw":{"next":0}}`,
	}
	var reads atomic.Int64
	query := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.Header.Get("Authorization") != "Bearer mine" {
			t.Errorf("query is asked %s %s with %v", r.Method, r.URL, r.Header)
		}
		if strings.HasSuffix(r.URL.Path, "/moved") {
			http.Redirect(w, r, "/v1/threads/t1/runs/over", http.StatusFound)
			return
		}
		if _, n, ok := strings.Cut(r.URL.Path, "/often"); ok {
			if reads.Add(1); len(n) < 5 { // up to often~999
				_, _ = io.WriteString(w, `{"clientRunId":"often","status":"error"}`)
				return
			}
		}
		if answer, ok := known[r.URL.Path]; ok {
			_, _ = io.WriteString(w, answer)
			return
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
	}))
	defer query.Close()
	cfg := testConfig(kafkatest.Start(t, 1))
	cfg.QueryURL, cfg.QueryInternalURL = "https://skein.invalid", query.URL+"/"
	cfg.QueryTLS = query.Client().Transport.(*http.Transport).TLSClientConfig
	d := open(t, cfg)
	requests := func(run string) (n int) {
		for _, r := range d.records() {
			if h := headersOf(t, r); h.Kind == record.KindCancel && h.RunID == run {
				n++
			}
		}
		return n
	}
	for run, status := range map[string]string{"over": "finished", "again": "error", "often": "error"} {
		a, _ := d.cancel(run, "", "Skein-Authorization", "Bearer mine", "Authorization", "Basic of the agent")
		if a.status != http.StatusConflict || a.Reason != "run-ended" || !strings.Contains(a.Detail, status) || requests(run) != 1 {
			t.Errorf("%s: %d %s after %d requests", run, a.status, a.body, requests(run))
		}
	}
	if reads.Load() > 25 {
		t.Errorf("query is asked %d times for an id used 1,000 times", reads.Load())
	}
	for _, run := range []string{"reused", "afterward", "silent", "moved"} {
		ended := make(chan int)
		go func() {
			defer close(ended)
			d.eventually("the request is repeated", func() bool { return requests(run) > 1 })
			end := strings.ReplaceAll(d.path("events"), "/runs/r1/", "/runs/"+run+"/")
			ended <- d.do(http.MethodPost, end, strings.NewReader(`{"type":"RUN_ERROR","message":"x"}`), "Content-Type", typeNDJSON).status
		}()
		if a, c := d.cancel(run, "", "Authorization", "Bearer mine"); a.status != http.StatusOK || c.Status != record.StatusError ||
			<-ended != http.StatusOK {
			t.Errorf("%s: %d %s", run, a.status, a.body)
		}
	}
}

func TestCancel_ARunThatNobodyEndsIsA409(t *testing.T) {
	t.Parallel()
	all := proxies(t, proxyConfig(t), 2)
	b := all[1]
	b.svc.cancelWait = 2 * time.Second
	for name, before := range map[string]func(){
		"a run that nobody knows": func() {},
		"a run that has ended": func() {
			if a := b.post(typeNDJSON, ev1+"\n"+`{"type":"RUN_FINISHED","threadId":"t1","runId":"r1"}`); a.status != http.StatusOK {
				t.Fatal(a.body)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			before()
			n := len(b.records())
			began := time.Now()
			a, _ := b.cancel("r1", "")
			if a.status != http.StatusConflict || a.Reason != "not-ended" {
				t.Fatalf("answer is %d %s, want 409 not-ended", a.status, a.body)
			}
			if took := time.Since(began); took < b.svc.cancelWait || took > b.svc.cancelWait+kafkatest.Timeout {
				t.Errorf("it took %v", took)
			}
			rs := b.records()[n:]
			if len(rs) != 1+len(cancelAgain) {
				t.Fatalf("there are %d records of it", len(rs))
			}
			for _, r := range rs {
				if h := headersOf(t, r); h.Kind != record.KindCancel || h.RunID != "r1" || string(r.Value) != "{}" {
					t.Errorf("a record is %s with %+v", r.Value, h)
				}
			}
			if at := fmt.Sprintf("%d:%d", rs[0].Partition, rs[0].Offset); !strings.Contains(a.Detail, at) {
				t.Errorf("the answer %q does not say where the request lies: %s", a.Detail, at)
			}
		})
	}
}

// An agent that writes to Kafka itself may read the request, and end its run.
func TestCancel_TellsOfAnyEndThatComes(t *testing.T) {
	d := newStage(t)
	for name, c := range map[string]struct {
		end    string
		runID  string // header
		status record.Status
	}{
		"cancelled":                      {`{"type":"RUN_FINISHED","threadId":"T","runId":"r1","outcome":{"type":"cancelled"}}`, "r1", record.StatusCancelled},
		"finished":                       {`{"type":"RUN_FINISHED","threadId":"T","runId":"r1"}`, "r1", record.StatusFinished},
		"interrupted":                    {`{"type":"RUN_FINISHED","threadId":"T","runId":"r1","outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":"x"}]}}`, "r1", record.StatusInterrupted},
		"an error":                       {`{"type":"RUN_ERROR","message":"x"}`, "r1", record.StatusError},
		"an end that names it by itself": {`{"type":"RUN_FINISHED","threadId":"T","runId":"r1"}`, "", record.StatusFinished},
	} {
		t.Run(name, func(t *testing.T) {
			d := d.in(t, name)
			ended := make(chan error, 1)
			go func() { ended <- d.endOnRequest(c.runID, c.end) }()
			a, got := d.cancel("r1", "")
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if a.status != http.StatusOK || got.Status != c.status || got.Synthetic {
				t.Errorf("answer is %d %s, want %s", a.status, a.body, c.status)
			}
		})
	}
}

// endOnRequest reads the thread's partition as an agent does, and ends the run once it is asked to; before that it ends others.
func (d *stage) endOnRequest(runID, end string) error {
	key, err := record.ThreadKey("dev", d.thread)
	if err != nil {
		return err
	}
	cfg := d.cfg
	cfg.Registerer = nil
	partition := record.Partition([]byte(key), 3)
	reader, err := kafka.NewDirectReader(cfg, cfg.Topics().Events, map[int32]int64{partition: kafka.Earliest})
	if err != nil {
		return err
	}
	defer reader.Close()
	producer, err := kafka.NewProducer(cfg)
	if err != nil {
		return err
	}
	defer producer.Close()
	for asked := false; !asked; {
		fetches := reader.PollFetches(d.t.Context())
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			h, err := record.ParseHeaders(r.Headers)
			asked = asked || err == nil && string(r.Key) == key && h.Kind == record.KindCancel && h.RunID == "r1"
		})
	}
	say := func(key, run, value string) *kgo.Record {
		return &kgo.Record{Topic: cfg.Topics().Events, Partition: partition, Key: []byte(key), Value: []byte(strings.Replace(value, `"T"`, `"`+d.thread+`"`, 1)),
			Headers: kafka.Headers(record.Headers{Kind: record.KindEvent, RunID: run, Seq: -1})}
	}
	return producer.ProduceSync(d.t.Context(),
		say(key, "r1", `{"type":`), say(key, "r1", ev2), say(key, "other", `{"type":"RUN_ERROR","message":"of another run"}`),
		say("dev/another", "r1", `{"type":"RUN_ERROR","message":"of another thread"}`),
		say(key, "", `{"type":"RUN_ERROR","message":"of nobody knows which run"}`),
		say(key, runID, end)).FirstErr()
}

// While a thread has a record of a newer version, its requests are not guessed at.
func TestCancel_StopsAtARecordOfANewerVersion(t *testing.T) {
	var log logtest.Log
	cfg := proxyConfig(t)
	cfg.Kafka.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
	b := proxies(t, cfg, 1)[0]
	b.svc.cancelWait = time.Second
	b.begins("r1")
	b.begins("r2")
	partition := record.Partition([]byte("dev/t1"), 3)
	b.eventually("it stops", func() bool {
		kafkatest.Produce(t, b.cfg, &kgo.Record{Topic: b.cfg.Topics().Events, Partition: partition, Key: []byte("dev/t1"), Value: []byte("{}"),
			Headers: kafka.Headers(record.Headers{Version: 2, Kind: record.KindCancel, RunID: "r1", Seq: -1})})
		time.Sleep(10 * time.Millisecond)
		return b.svc.CheckVersions() != nil
	})
	if err := b.svc.CheckVersions(); !errors.Is(err, record.ErrUnknownVersion) ||
		!strings.Contains(err.Error(), "unknown record version 2, this program knows up to 1") {
		t.Errorf("it stops because %v", err)
	}
	kafkatest.Produce(t, b.cfg, &kgo.Record{Topic: b.cfg.Topics().Events, Partition: partition, Key: []byte("dev/t1"), Value: []byte("{}"),
		Headers: kafka.Headers(record.Headers{Kind: record.KindCancel, RunID: "r1", Seq: -1})})
	if a, _ := b.cancel("r1", ""); a.status == http.StatusOK {
		t.Errorf("the run is stopped: %s", a.body)
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d lines of the log, want 1:\n%s", n, log.String())
	}
}

// A request that was copied from another topic set, or retried as a dead letter, is not about a run of now.
func TestCancel_LeavesOutWhatWasWrittenAgain(t *testing.T) {
	b := proxies(t, testConfig(kafkatest.Start(t, 1)), 1)[0]
	b.begins("r1")
	b.begins("r2")
	say := func(run string, more ...kgo.RecordHeader) {
		kafkatest.Produce(t, b.cfg, &kgo.Record{Topic: b.cfg.Topics().Events, Key: []byte("dev/t1"), Value: []byte("{}"),
			Headers: append(kafka.Headers(record.Headers{Kind: record.KindCancel, RunID: run, Seq: -1}), more...)})
	}
	for _, name := range []string{record.HeaderCopiedFrom, record.HeaderRetryOf} {
		say("r1", kgo.RecordHeader{Key: name, Value: []byte("0:0")})
	}
	if a, _ := b.cancel("r2", ""); a.status != http.StatusOK || !b.svc.Runs().Held("dev/t1", "r1") {
		t.Errorf("answer is %d %s, and the other run is held: %v", a.status, a.body, b.svc.Runs().Held("dev/t1", "r1"))
	}
}

func TestCancel_RefusesWhatIsNoRequest(t *testing.T) {
	d := newStage(t)
	for name, c := range map[string]struct {
		contentType, body string
		status            int
		reason            string
	}{
		"not JSON":             {typeJSON, "stop", 400, "not-json"},
		"a list":               {typeJSON, "[]", 400, "not-json"},
		"a reason that is not": {typeJSON, `{"reason":1}`, 400, "not-json"},
		"a long reason":        {typeJSON, `{"reason":"` + strings.Repeat("x", 1025) + `"}`, 413, "too-large"},
		"a long body":          {typeJSON, strings.Repeat(" ", 10) + `{"x":"` + strings.Repeat("x", 10<<10) + `"}`, 413, "too-large"},
		"another form":         {"text/plain", "stop", 415, "media-type"},
	} {
		t.Run(name, func(t *testing.T) {
			d := d.in(t, name)
			a, _ := d.cancel("r1", c.body, "Content-Type", c.contentType)
			if a.status != c.status || a.Reason != c.reason {
				t.Errorf("answer is %d %s, want %d %s", a.status, a.body, c.status, c.reason)
			}
			wantTypes(t, a, typeJSON)
			if got := d.written(); len(got) != 0 {
				t.Errorf("written is %q, want nothing", got)
			}
		})
	}
}

// From the call to the run's end it takes less than a second, where one process is asked and another one holds the run. The median is held
// to it: on a busy machine single calls take longer.
func TestCancel_TakesLessThanASecond(t *testing.T) {
	kafkatest.OnBoth(t, 3, func(t *testing.T, cfg kafka.Config) {
		all := proxies(t, testConfig(cfg), 2)
		const n = 20
		var took []time.Duration
		for i := range n {
			holder, asked := all[i%2], all[1-i%2]
			thread := fmt.Sprint("thread ", i)
			on := &behind{stage: holder.in(t, thread), agent: holder.agent}
			rest := on.begins("r1")
			began := time.Now()
			a, _ := asked.in(t, thread).cancel("r1", "")
			took = append(took, time.Since(began))
			if a.status != http.StatusOK {
				t.Fatalf("answer is %d %s", a.status, a.body)
			}
			if _, err := io.ReadAll(rest); err != nil {
				t.Fatal(err)
			}
		}
		slices.Sort(took)
		t.Logf("%d runs over two proxies: p50 %v, p95 %v, most %v", n, took[n/2], took[n*95/100], took[n-1])
		if p50 := took[n/2]; p50 > time.Second {
			t.Errorf("p50 is %v", p50)
		}
	})
}
