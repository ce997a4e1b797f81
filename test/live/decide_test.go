package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/seedtest"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/live"
	"github.com/skeinhq/skein/pkg/query"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/test/conformance"
)

// noRecords is the source of a thread whose runs have no records.
type noRecords struct{}

var errNoRecord = errors.New("no run has a record")

func (noRecords) Record(string) (*record.Run, error)      { return nil, errNoRecord }
func (noRecords) History(string) (lineage.History, error) { return lineage.History{}, errNoRecord }
func (noRecords) Holding(ids []string) ([]string, error)  { return nil, nil }

// indexed is the source of a thread from its rows in the index, as query's is.
type indexed struct {
	s       *site
	records query.RecordReader
	thread  string
	rows    []store.Run
}

// Record implements live.Source.
func (i indexed) Record(run string) (*record.Run, error) {
	n := slices.IndexFunc(i.rows, func(r store.Run) bool { return r.RunID == run })
	value, err := i.records.Record(i.s.t.Context(), i.rows[n].Raw.Partition, i.rows[n].Version)
	if err != nil {
		return nil, err
	}
	return record.DecodeRun(value)
}

// History implements live.Source.
func (i indexed) History(run string) (lineage.History, error) {
	status, body := i.s.send(http.MethodGet, i.s.queries[0]+runPath(i.thread, run)+"/history", "", "")
	var answer struct {
		Messages []agui.Message
		State    json.RawMessage
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusOK {
		return lineage.History{}, fmt.Errorf("%d %s: %w", status, body, err)
	}
	return lineage.History{Messages: answer.Messages, State: answer.State}, nil
}

// Holding implements live.Source.
func (i indexed) Holding(ids []string) ([]string, error) {
	versions, err := i.s.store.Holding(i.s.t.Context(), "acme", i.thread, ids)
	return slices.Collect(maps.Keys(versions)), err
}

// follow returns the thread as it is followed from the index.
func (i indexed) follow() (*live.Thread, error) {
	to, err := i.s.store.IndexedTo(i.s.t.Context(), "")
	if err != nil {
		return nil, err
	}
	if i.rows, err = i.s.store.Thread(i.s.t.Context(), "acme", i.thread); err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	var records []*record.Run
	for n := range i.rows {
		records = append(records, &i.rows[n].Run)
	}
	return live.New(i.thread, records, to[0], i)
}

// history writes a random thread: runs that overlap, reuse ids, have an input or a named parent or not; events with and without a run id, late ones
// and malformed ones.
type history struct {
	*rand.Rand
	thread  string
	records []*kgo.Record
	topic   string
	open    []string
	used    []string
	lists   [][]string // of messages, as runs left them
	said    map[string][]string
	n       int
}

func (h *history) add(kind record.Kind, run, value string) {
	key, err := record.ThreadKey("acme", h.thread)
	if err != nil {
		panic(err)
	}
	h.records = append(h.records, &kgo.Record{
		Topic: h.topic, Key: []byte(key), Value: []byte(value), Headers: kafka.Headers(record.Headers{Version: record.Version, Kind: kind, RunID: run, Seq: -1}),
	})
}

func (h *history) begin() {
	run := string(rune('a' + h.IntN(5)))
	parent := ""
	if len(h.used) > 0 && h.IntN(4) == 0 {
		parent = fmt.Sprintf(`,"parentRunId":%q`, h.used[h.IntN(len(h.used))])
	}
	var list []string
	within := ""       // RUN_STARTED
	if h.IntN(3) > 0 { // an input
		if len(h.lists) > 0 && h.IntN(4) > 0 {
			list = append(list, h.lists[h.IntN(len(h.lists))]...)
			list = list[:h.IntN(len(list)+1)]
		}
		h.n++
		list = append(list, fmt.Sprintf(`{"id":"u%d","role":"user","content":"question"}`, h.n))
		input := fmt.Sprintf(`{"threadId":%q,"runId":%q%s,"messages":[%s],"state":{"n":%d}}`, h.thread, run, parent, strings.Join(list, ","), h.n)
		if h.IntN(2) == 0 { // normalised if none of its messages is known
			within = `,"input":` + input
		} else {
			h.add(record.KindInput, run, input)
		}
	}
	h.said[run] = list
	if within != "" || h.IntN(5) > 0 {
		h.add(record.KindEvent, run, fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q%s%s}`, h.thread, run, parent, within))
	}
	h.open, h.used = append(h.open, run), append(h.used, run)
}

func (h *history) step() {
	if len(h.open) == 0 || h.IntN(6) == 0 {
		h.begin()
		return
	}
	i := h.IntN(len(h.open))
	run := h.open[i]
	named := run
	if h.IntN(4) == 0 {
		named = ""
	}
	switch h.IntN(9) {
	case 0, 1:
		h.n++
		h.add(record.KindEvent, named, fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m%d","role":"assistant","delta":"answer"}`, h.n))
		h.said[run] = append(h.said[run], fmt.Sprintf(`{"id":"m%d","role":"assistant","content":"answer"}`, h.n))
	case 2:
		h.add(record.KindEvent, named, `{"type":"STATE_DELTA","delta":[{"op":"add","path":"/n","value":1}]}`)
	case 3:
		h.add(record.KindEvent, named, `{"type":"STATE_DELTA","delta":[{"op":"remove","path":"/none"}]}`)
	case 4:
		h.add(record.KindEvent, named, `{"type":"TEXT_MESSAGE_CONTENT"}`) // malformed
	case 5: // late, or of a run that has not begun
		h.add(record.KindEvent, string(rune('a'+h.IntN(6))), `{"type":"CUSTOM","name":"late","value":1}`)
	case 6:
		h.add(record.KindEvent, named, fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, h.thread, run))
		h.end(i)
	case 7:
		h.add(record.KindEvent, named, `{"type":"RUN_ERROR","message":"failed"}`)
		h.end(i)
	case 8:
		h.add(record.KindEvent, named, `{"type":"CUSTOM","name":"note","value":1}`)
	}
}

func (h *history) end(i int) {
	h.lists = append(h.lists, h.said[h.open[i]])
	h.open = append(h.open[:i:i], h.open[i+1:]...)
}

// A live thread makes the compactor's decisions: the same runs at the same offsets, with the same parents, ends and histories; be it
// followed from its first event, or from the records of its runs at any point.
func TestThread_DecidesAsTheCompactor(t *testing.T) {
	k := kafkatest.Start(t, 1)
	seed := seedtest.New(t)
	s := start(t, k, options{checkpoint: 20 * time.Millisecond})
	var before, log []*kgo.Record
	var names []string
	for i := range 30 {
		h := &history{Rand: rand.New(rand.NewPCG(seed, uint64(i))), thread: fmt.Sprintf("t%d", i), topic: k.Topics().Events, said: map[string][]string{}}
		for range 5 + h.IntN(60) {
			h.step()
		}
		for _, run := range h.used { // open runs have no row here
			h.add(record.KindEvent, run, `{"type":"RUN_ERROR","message":"the end"}`)
		}
		cut := h.IntN(len(h.records))
		before, log, names = append(before, h.records[:cut]...), append(log, h.records[cut:]...), append(names, h.thread)
	}
	split := len(before)
	log = append(before, log...)
	for i, m := range log {
		m.Offset = int64(i)
	}
	kafkatest.Produce(t, k, log[:split]...)
	s.indexedTo(split)
	records := query.NewKafkaRecords(k)
	defer records.Close()
	threads, fromRecords := map[string]*live.Thread{}, map[string]*live.Thread{}
	for _, name := range names {
		thread, err := live.New(name, nil, 0, noRecords{})
		if err != nil {
			t.Fatal(err)
		}
		threads[name] = thread
		if fromRecords[name], err = (indexed{s: s, records: records, thread: name}).follow(); err != nil {
			t.Fatal(err)
		}
	}
	for i, m := range log {
		e, err := kafka.Event(m, record.Headers{})
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(string(m.Key), "acme/")
		if _, _, err := threads[name].Take(e); err != nil {
			t.Fatalf("%s: taking %d: %v", name, i, err)
		}
		if thread := fromRecords[name]; m.Offset >= thread.From() {
			if _, _, err := thread.Take(e); err != nil {
				t.Fatalf("%s: taking %d behind records: %v", name, i, err)
			}
		}
	}
	kafkatest.Produce(t, k, log[split:]...)
	s.indexedTo(len(log))
	s.compareDecisions("from its first event", threads, log)
	s.compareDecisions(fmt.Sprint("from the records at ", split), fromRecords, log)
}

// indexedTo waits until the index covers so many records of the only partition.
func (s *site) indexedTo(records int) {
	s.t.Helper()
	s.eventually("all is indexed", func() (string, bool) {
		to, err := s.store.IndexedTo(s.t.Context(), "")
		return fmt.Sprint(to, err, records), err == nil && to[0] >= int64(records)
	})
}

// compareDecisions compares threads that were followed with the runs in the index.
func (s *site) compareDecisions(how string, threads map[string]*live.Thread, log []*kgo.Record) {
	t := s.t
	t.Helper()
	runs := 0
	for name, thread := range threads {
		rows, err := s.store.Thread(t.Context(), "acme", name)
		if err != nil {
			t.Fatal(err)
		}
		var want, got []string
		for _, r := range rows {
			want = append(want, fmt.Sprint(r.RunID, " of ", r.ClientRunID, " at ", r.Raw.First, " to ", r.Raw.Next, " behind ", r.ParentRunID, " by ", r.ParentBy, " on ", r.BranchID, " ", r.Depth, " ", r.Status))
		}
		for _, r := range thread.Runs() {
			got = append(got, fmt.Sprint(r.Head.ID, " of ", r.Head.ClientID, " at ", r.Head.Start, " to ", r.Next, " behind ", r.Head.Parent, " by ", r.Head.ParentBy, " on ", r.Head.Branch, " ", r.Head.Depth, " ", r.Head.Status))
		}
		if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
			t.Errorf("thread %s, %s, is followed as\n%s\nand folded as\n%s\nof\n%s", name, how, g, w, dump(log, name))
			continue
		}
		for _, r := range thread.Runs() {
			if r.Fold() == nil {
				continue // an input alone, or a run that ended before its thread was followed
			}
			runs++
			status, body := s.send(http.MethodGet, s.queries[0]+runPath(name, r.Head.ID)+"/history", "", "")
			var history struct{ Messages, State json.RawMessage }
			if err := json.Unmarshal([]byte(body), &history); err != nil || status != http.StatusOK {
				t.Fatalf("%d %s", status, body)
			}
			messages, err := json.Marshal(r.Fold().Messages())
			if err != nil {
				t.Fatal(err)
			}
			if d := conformance.DiffJSON("messages", history.Messages, messages); d != "" {
				t.Errorf("thread %s, run %s: %s\nof\n%s", name, r.Head.ID, d, dump(log, name))
			}
			if d := conformance.DiffJSON("state", history.State, r.Fold().State()); d != "" {
				t.Errorf("thread %s, run %s: %s", name, r.Head.ID, d)
			}
		}
	}
	if runs < 100 {
		t.Errorf("only %d runs were compared, %s", runs, how)
	}
}

func dump(log []*kgo.Record, thread string) string {
	var b strings.Builder
	for _, m := range log {
		if e, err := kafka.Event(m, record.Headers{}); err == nil && string(m.Key) == "acme/"+thread {
			fmt.Fprintf(&b, "%d %s %q %s\n", m.Offset, e.Headers.Kind, e.Headers.RunID, m.Value)
		}
	}
	return b.String()
}
