package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/live"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/conformance"
)

// noRecords is the source of a thread whose runs have no records.
type noRecords struct{}

var errNoRecord = errors.New("no run has a record")

func (noRecords) Record(string) (*record.Run, error)      { return nil, errNoRecord }
func (noRecords) History(string) (lineage.History, error) { return lineage.History{}, errNoRecord }
func (noRecords) Holding(ids []string) ([]string, error)  { return nil, nil }

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
	if h.IntN(3) > 0 { // an input
		if len(h.lists) > 0 && h.IntN(4) > 0 {
			list = append(list, h.lists[h.IntN(len(h.lists))]...)
			list = list[:h.IntN(len(list)+1)]
		}
		h.n++
		list = append(list, fmt.Sprintf(`{"id":"u%d","role":"user","content":"question"}`, h.n))
		h.add(record.KindInput, run, fmt.Sprintf(`{"threadId":%q,"runId":%q%s,"messages":[%s],"state":{"n":%d}}`, h.thread, run, parent, strings.Join(list, ","), h.n))
	}
	h.said[run] = list
	if h.IntN(5) > 0 {
		h.add(record.KindEvent, run, fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q%s}`, h.thread, run, parent))
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

// A live thread makes the compactor's decisions: the same runs at the same offsets, with the same parents, ends and histories.
func TestThread_DecidesAsTheCompactor(t *testing.T) {
	k := kafkatest.Start(t, 1)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := start(t, k, options{})
	var log []*kgo.Record
	threads := map[string]*live.Thread{}
	for i := range 60 {
		h := &history{Rand: rand.New(rand.NewPCG(seed, uint64(i))), thread: fmt.Sprintf("t%d", i), topic: k.Topics().Events, said: map[string][]string{}}
		for range 5 + h.IntN(60) {
			h.step()
		}
		for _, run := range h.used { // open runs have no row here
			h.add(record.KindEvent, run, `{"type":"RUN_ERROR","message":"the end"}`)
		}
		log = append(log, h.records...)
		thread, err := live.New(h.thread, nil, 0, noRecords{})
		if err != nil {
			t.Fatal(err)
		}
		threads[h.thread] = thread
	}
	kafkatest.Produce(t, k, log...)
	for i, m := range log {
		m.Offset = int64(i)
		e, err := kafka.Event(m, record.Headers{})
		if err != nil {
			t.Fatal(err)
		}
		thread := strings.TrimPrefix(string(m.Key), "acme/")
		if _, _, err := threads[thread].Take(e); err != nil {
			t.Fatalf("%s: taking %d: %v", thread, i, err)
		}
	}
	s.eventually("all is indexed", func() (string, bool) {
		to, err := s.store.IndexedTo(t.Context(), "")
		return fmt.Sprint(to, err, len(log)), err == nil && to[0] >= int64(len(log))
	})
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
			t.Errorf("thread %s is followed as\n%s\nand folded as\n%s\nof\n%s", name, g, w, dump(log, name))
			continue
		}
		for _, r := range thread.Runs() {
			runs++
			status, body := s.send(http.MethodGet, s.queries[0]+runPath(name, r.Head.ID)+"/history", "", "")
			var history struct{ Messages, State json.RawMessage }
			if err := json.Unmarshal([]byte(body), &history); err != nil || status != http.StatusOK {
				t.Fatalf("%d %s", status, body)
			}
			if r.Fold() == nil {
				continue // an input alone
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
	if runs < 200 {
		t.Errorf("only %d runs were compared", runs)
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
