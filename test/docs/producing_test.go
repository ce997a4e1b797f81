package docs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/internal/app/dev/devtest"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/deadletter"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/constants"
)

func producing(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "docs", "producing.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// rows returns the cells of the table that begins with this heading.
func rows(t *testing.T, text, heading string) [][]string {
	t.Helper()
	_, table, ok := strings.Cut(text, "\n| "+heading+" |")
	if !ok {
		t.Fatalf("there is no table %q", heading)
	}
	var out [][]string
	for i, line := range strings.Split(table, "\n") {
		if i > 1 && !strings.HasPrefix(line, "|") {
			break
		}
		if i > 1 {
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for j := range cells {
				cells[j] = strings.TrimSpace(cells[j])
			}
			out = append(out, cells)
		}
	}
	return out
}

var quoted = regexp.MustCompile("`([^`]+)`")

func names(cell string) (out []string) {
	for _, found := range quoted.FindAllStringSubmatch(cell, -1) {
		out = append(out, found[1])
	}
	return out
}

func TestProducing_TellsEveryHeaderKindAndRule(t *testing.T) {
	text := producing(t)
	var headers, kinds []string
	for _, row := range rows(t, text, "header") {
		for _, name := range names(row[0]) {
			headers = append(headers, strings.TrimSuffix(name, "KEY")) // of a label the code has what its name begins with
		}
		if row[0] == "`"+record.HeaderKind+"`" {
			kinds = names(row[1])
		}
	}
	known := constants.Values(t, filepath.Join(root, "pkg", "record"), "Header")
	for _, name := range headers {
		if !slices.Contains(known, name) {
			t.Errorf("there is no header %s", name)
		}
	}
	for _, name := range known {
		if !slices.Contains(headers, name) && !strings.Contains(text, "`"+name+"`") {
			t.Errorf("header %s is not told", name)
		}
	}
	known = constants.Values(t, filepath.Join(root, "pkg", "record"), "Kind")
	for _, name := range kinds {
		if !slices.Contains(known, name) {
			t.Errorf("there is no kind %s", name)
		}
	}
	for _, kind := range []record.Kind{record.KindEvent, record.KindInput, record.KindErase, record.KindCancel} {
		if !slices.Contains(kinds, string(kind)) {
			t.Errorf("kind %s is not told", kind)
		}
	}
	for _, folder := range []string{"fold", "lineage"} {
		for _, rule := range constants.Values(t, filepath.Join(root, "pkg", folder), "Anomaly") {
			if !strings.Contains(text, "`"+rule+"`") {
				t.Errorf("rule %s is not told", rule)
			}
		}
	}
	for _, number := range []string{strconv.Itoa(kafka.MaxBatchBytes), fmt.Sprintf("%d MiB", kafka.MaxValueBytes>>20),
		fmt.Sprintf("%d bytes of UTF-8", record.MaxIDBytes)} {
		if !strings.Contains(text, number) {
			t.Errorf("%s is not told", number)
		}
	}
	key, err := record.ThreadKey("dev", "order 17/é")
	if err != nil {
		t.Fatal(err)
	}
	if example := fmt.Sprintf("`%s`, and partition %d of 12", key, record.Partition([]byte(key), 12)); !strings.Contains(text, example) {
		t.Errorf("the example of a key is %s", example)
	}
}

// sent is a record that a producer makes by mistake or not: an event unless it says so, on the key's partition.
type sent struct {
	key     []byte // of the row's own thread where nil
	noKey   bool
	other   bool // on another partition
	headers map[string]string
	value   string
	at      time.Time
}

const (
	started  = `{"type":"RUN_STARTED","threadId":"T","runId":"r"}`
	open     = `{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}`
	says     = `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"a"}`
	closed   = `{"type":"TEXT_MESSAGE_END","messageId":"m"}`
	finished = `{"type":"RUN_FINISHED","threadId":"T","runId":"r"}`
	asked    = `{"threadId":"T","runId":"r","messages":[{"id":"u","role":"user","content":"b"}]}`
)

// of is a record of the run r.
func of(value string, more ...string) sent {
	s := sent{value: value, headers: map[string]string{"run-id": "r"}}
	for pair := range slices.Chunk(more, 2) {
		s.headers[pair[0]] = pair[1]
	}
	return s
}

func input(value string) sent { return of(value, "skein-kind", "input") }

// numbered are events of the run r with these numbers, -1 for none.
func numbered(values []string, seqs ...int) (out []sent) {
	for i, v := range values {
		if seqs[i] < 0 {
			out = append(out, of(v))
		} else {
			out = append(out, of(v, "seq", strconv.Itoa(seqs[i])))
		}
	}
	return out
}

// within puts a record into a run that is begun and ended round it.
func within(records ...sent) []sent {
	return append(append([]sent{of(started)}, records...), of(finished))
}

// whole is a run of five events.
var whole = []string{started, open, says, closed, finished}

// many are more messages than an input or snapshot may have.
var many = strings.Repeat(`"x",`, agui.MaxMessages) + `"x"`

// mistakes are the rows of the table: what a producer sends, and of what it leads to the runs and the text of the messages.
var mistakes = map[string]struct {
	records []sent
	runs    string
	text    string
}{
	"no key, or one that is not `tenant/thread`": {records: []sent{{noKey: true, value: started}, {key: []byte("dev"), value: started}, {key: []byte("dev/a/b"), value: started}}},
	"a key that is not escaped, or escaped in another way": {records: []sent{
		{key: []byte("dev/a b"), value: started}, {key: []byte("dev/a%2fb"), value: started}, {key: []byte("dev/a+b"), value: started},
		{key: []byte("dev/%61"), value: started}, {key: []byte("dev/ä"), value: started}}},
	"an id in the key that is empty, over 512 bytes, `.` or `..`": {records: []sent{
		{key: []byte("dev/"), value: started}, {key: []byte("dev/" + strings.Repeat("x", 513)), value: started},
		{key: []byte("dev/."), value: started}, {key: []byte("dev/.."), value: started}}},
	"another partition than the key's":                                    {records: []sent{{other: true, value: started}}},
	"a `skein-version` that is not `1`, such as `0`, `2` or `new`":        {records: []sent{of(started, "skein-version", "0"), of(started, "skein-version", "2"), of(started, "skein-version", "new")}},
	"an unknown `skein-kind`, such as `Event`":                            {records: []sent{of(started, "skein-kind", "Event")}},
	"a `skein-kind` of Skein's own topics, such as `run`":                 {records: []sent{of(started, "skein-kind", "run")}},
	"a `seq` that is not a decimal number, such as eight bytes, or `1.0`": {records: []sent{of(started, "seq", "\x00\x00\x00\x00\x00\x00\x00\x01"), of(started, "seq", "1.0"), of(started, "seq", "-1")}},
	"a `run-id` that is empty, over 512 bytes, `.` or `..`, or not UTF-8": {records: []sent{of(started, "run-id", ""), of(started, "run-id", strings.Repeat("x", 513)), of(started, "run-id", ".."), of(started, "run-id", "\xff")}},
	"a value of more than 16 MiB":                                         {records: []sent{of(`{"type":"CUSTOM","name":"large","value":"` + strings.Repeat("x", kafka.MaxValueBytes) + `"}`)}},
	"a value that is not a JSON object with a `type`, or no value":        {records: within(of(`{"type":`), of(`[]`), of(`{"type":""}`), of("")), runs: "r finished"},
	"an event that AG-UI's schema rejects":                                {records: within(of(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m"}`)), runs: "r finished"},
	"an input without a list of `messages`":                               {records: append([]sent{input(`{"threadId":"T","runId":"r"}`)}, within()...), runs: "r finished"},
	"an input, or a `MESSAGES_SNAPSHOT`, of more than 10,000 messages or tool calls: send what the run adds, and name the parent run for the rest": {
		records: append([]sent{input(`{"threadId":"T","runId":"r","messages":[` + many + `]}`)}, within(of(`{"type":"MESSAGES_SNAPSHOT","messages":[`+many+`]}`))...), runs: "r finished"},
	"an event without `run-id` while no run is open":                               {records: []sent{{value: says}}},
	"an event after the run's end":                                                 {records: append(within(), of(open)), runs: "r finished"},
	"RUN_ERROR after RUN_FINISHED":                                                 {records: append(within(), of(`{"type":"RUN_ERROR","message":"x"}`)), runs: "r error"},
	"another second end":                                                           {records: append(within(), of(finished)), runs: "r finished"},
	"an input after the run's first event":                                         {records: within(input(asked)), runs: "r finished"},
	"two different inputs before the first event":                                  {records: append([]sent{input(strings.Replace(asked, `"b"`, `"a"`, 1)), input(asked)}, within()...), runs: "r finished", text: "b"},
	"a payload that names another thread than the key":                             {records: []sent{of(`{"type":"RUN_STARTED","threadId":"another","runId":"r"}`), of(finished)}, runs: "r finished"},
	"a payload that names another run than `run-id`":                               {records: []sent{of(`{"type":"RUN_STARTED","threadId":"T","runId":"another"}`), of(finished)}, runs: "r finished"},
	"an event sent again with its `seq`":                                           {records: numbered([]string{started, open, says, says, closed, finished}, 0, 1, 2, 2, 3, 4), runs: "r finished", text: "a"},
	"an event sent again without `seq`":                                            {records: numbered([]string{started, open, says, says, closed, finished}, -1, -1, -1, -1, -1, -1), runs: "r finished", text: "aa"},
	"a `seq` left out":                                                             {records: numbered(whole, 0, 1, 3, 4, 5), runs: "r finished", text: "a"},
	"a whole run sent again after its end, with `seq`":                             {records: append(append([]sent{input(asked)}, numbered(whole, 0, 1, 2, 3, 4)...), append([]sent{input(asked)}, numbered(whole, 0, 1, 2, 3, 4)...)...), runs: "r finished", text: "ba"},
	"a whole run sent again after its end, without `seq`":                          {records: append(numbered(whole, -1, -1, -1, -1, -1), numbered(whole, -1, -1, -1, -1, -1)...), runs: "r finished, r~2 finished after r", text: "aa"},
	"a run that names itself as its parent":                                        {records: []sent{of(`{"type":"RUN_STARTED","threadId":"T","runId":"r","parentRunId":"r"}`), of(finished)}, runs: "r finished"},
	"two runs that name each other as parent":                                      {records: []sent{{value: `{"type":"RUN_STARTED","threadId":"T","runId":"r","parentRunId":"s"}`}, of(finished), {value: `{"type":"RUN_STARTED","threadId":"T","runId":"s","parentRunId":"r"}`}, {value: `{"type":"RUN_FINISHED","threadId":"T","runId":"s"}`}}, runs: "r finished, s finished after r"},
	"text for a message that was not started, a step that ends twice and the like": {records: within(of(says), of(`{"type":"STEP_STARTED","stepName":"s"}`), of(`{"type":"STEP_FINISHED","stepName":"s"}`), of(`{"type":"STEP_FINISHED","stepName":"s"}`)), runs: "r finished"},
	"an unknown type, member or header":                                            {records: within(of(`{"type":"NEW","a":1}`), of(`{"type":"CUSTOM","name":"x","value":1,"new":2}`, "traceparent", "00")), runs: "r finished"},
	"no header at all":                                                             {records: []sent{{value: started}, {value: open}, {value: says}, {value: closed}, {value: finished}}, runs: "r finished", text: "a"},
	"a record from the future":                                                     {records: []sent{of(started), {value: open}, {value: says, at: time.Now().Add(48 * time.Hour)}, of(closed), of(finished)}, runs: "r finished", text: "a"},
}

// Each row of the table of mistakes is sent to a Skein, and leads to the dead letters and anomalies that the row names.
func TestProducing_EveryMistakeGetsWhatTheTableSays(t *testing.T) {
	table := rows(t, producing(t), "mistake")
	server := startSkein(t)
	cfg := server.Kafka()
	partitions := int32(dev.DefaultConfig().Partitions)
	var told []string
	var records []*kgo.Record
	from := map[*kgo.Record]string{}
	for i, row := range table {
		what := row[0]
		told = append(told, names(row[1])...)
		m, ok := mistakes[what]
		if !ok {
			t.Errorf("nobody tries %q", what)
		}
		for _, s := range m.records {
			r := s.record(t, threadOf(i), partitions)
			r.Topic = cfg.Topics().Events
			records = append(records, r)
			from[r] = what
		}
	}
	if len(table) != len(mistakes) {
		t.Errorf("the table has %d rows, %d are tried", len(table), len(mistakes))
	}
	told = append(told, deadletter.NotFromIngest) // skein dev requires no signatures
	slices.Sort(told)
	if want := slices.Sorted(slices.Values(deadletter.Reasons())); !slices.Equal(slices.Compact(told), want) {
		t.Errorf("reasons that are told are %q, want %q", slices.Compact(told), want)
	}
	publish(t, cfg, records)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := server.Settle(ctx); err != nil {
		t.Fatal(err)
	}

	letters := map[string]map[string]bool{} // reasons by row
	at := map[string]string{}
	for r, what := range from {
		at[record.Position{Partition: r.Partition, Offset: r.Offset}.String()] = what
		letters[what] = map[string]bool{}
	}
	for _, r := range kafkatest.Consume(t, cfg, cfg.Topics().DeadLetters) {
		headers := map[string]string{}
		for _, h := range r.Headers {
			headers[h.Key] = string(h.Value)
		}
		letters[at[headers[record.HeaderPosition]]][headers[record.HeaderReason]] = true
	}
	c := devtest.Client(t, server.URL())
	for i, row := range table {
		what, m := row[0], mistakes[row[0]]
		if got, want := slices.Sorted(maps.Keys(letters[what])), names(row[1]); !slices.Equal(got, want) {
			t.Errorf("%s: dead letters %q, the table says %q", what, got, want)
		}
		found := look(ctx, t, c, threadOf(i))
		want := names(row[2])
		slices.Sort(want)
		if !slices.Equal(found.anomalies, want) {
			t.Errorf("%s: anomalies %q, the table says %q", what, found.anomalies, want)
		}
		if found.runs != m.runs || m.text != "" && found.text != m.text {
			t.Errorf("%s: there are runs %q with the text %q, want %q, %q", what, found.runs, found.text, m.runs, m.text)
		}
	}
}

func threadOf(row int) string { return "mistake " + strconv.Itoa(row) }

// record makes the record of skein.events; T in its value is the thread's id.
func (s sent) record(t *testing.T, thread string, partitions int32) *kgo.Record {
	t.Helper()
	key, err := record.ThreadKey(dev.Tenant, thread)
	if err != nil {
		t.Fatal(err)
	}
	r := &kgo.Record{Key: []byte(key), Timestamp: s.at}
	if s.value != "" {
		r.Value = []byte(strings.Replace(s.value, `"threadId":"T"`, `"threadId":"`+thread+`"`, 1))
	}
	if s.key != nil || s.noKey {
		r.Key = s.key
	}
	if r.Partition = record.Partition(r.Key, partitions); s.other {
		r.Partition = (r.Partition + 1) % partitions
	}
	for _, name := range slices.Sorted(maps.Keys(s.headers)) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(s.headers[name])})
	}
	return r
}

// publish writes records as they are, also such as Skein's own producers refuse.
func publish(t *testing.T, cfg kafka.Config, records []*kgo.Record) {
	t.Helper()
	cfg.Registerer = nil
	producer, err := kafka.NewProducer(cfg, kgo.ProducerBatchMaxBytes(32<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	if err := producer.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// found is what is there of a thread.
type found struct {
	anomalies []string // of all runs
	runs      string   // "ID STATUS after PARENT, …"
	text      string   // of the messages at the tip
}

func look(ctx context.Context, t *testing.T, c *client.Client, thread string) (f found) {
	t.Helper()
	get := func(path string, into any) bool {
		t.Helper()
		b, err := c.Get(ctx, path, nil)
		if client.IsNotFound(err) {
			return false
		}
		if err == nil {
			err = json.Unmarshal(b, into)
		}
		if err != nil {
			t.Fatal(err)
		}
		return true
	}
	var lineage struct {
		TipRunID string
		Runs     []struct{ RunID, ParentRunID, Status string }
	}
	if !get(client.ThreadPath(thread)+"/lineage", &lineage) {
		return f
	}
	var runs []string
	for _, r := range lineage.Runs {
		runs = append(runs, r.RunID+" "+r.Status+strings.TrimSuffix(" after "+r.ParentRunID, " after "))
		var run struct {
			Stats struct{ Anomalies map[string]int }
		}
		get(client.RunPath(thread, r.RunID), &run)
		f.anomalies = append(f.anomalies, slices.Collect(maps.Keys(run.Stats.Anomalies))...)
	}
	slices.Sort(f.anomalies)
	f.anomalies = slices.Compact(f.anomalies)
	f.runs = strings.Join(runs, ", ")
	var history struct {
		Messages []struct{ Content string }
	}
	get(client.RunPath(thread, cmp.Or(lineage.TipRunID, lineage.Runs[0].RunID))+"/history", &history)
	for _, m := range history.Messages {
		f.text += m.Content
	}
	return f
}
