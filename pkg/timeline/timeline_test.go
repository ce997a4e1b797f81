package timeline

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/parts/partstest"
)

var everyEvent = flag.Bool("timeline.every-event", false, "compare at every event of every recording, and not at some")

// thread is a thread whose records are made by folding each run by itself, in the order of its events.
type thread struct {
	t    testing.TB
	log  []record.Event
	runs []string
	// at are the histories behind the folded events of each run, by their number; 0 is the start.
	at    map[string][]lineage.History
	folds map[string]*oracle
	// blind: no histories are noted, which takes memory in proportion to the square of what grows.
	blind bool
	// every is how many events its timelines fold between two marks at least; 0 is as usual.
	every int
}

// oracle folds one run as its records come (fold.Runs), and notes the history behind each event.
type oracle struct {
	*fold.Run
	th    *thread
	given *record.Run
	from  fold.Origin
	raw   record.Raw
}

func newThread(t testing.TB) *thread {
	return &thread{t: t, at: map[string][]lineage.History{}, folds: map[string]*oracle{}}
}

func (o *oracle) Find(*fold.Decoded) (*fold.Run, fold.Outcome, error) { return o.Run, "", nil }

func (o *oracle) Begin(_ *fold.Run, _ *fold.Decoded, input *agui.RunAgentInput) (*compact.Run, error) {
	started := fold.Restart(o.given, &o.from, input)
	o.th.at[o.ID] = []lineage.History{{Messages: started.Messages(), State: started.State()}}
	return started, nil
}

// run tells of a run before its first record: parent is empty or a run before, of which base says whether it has ended.
func (th *thread) run(id, parent string) {
	rec := &record.Run{ThreadID: "t", RunID: id, Lineage: record.Lineage{ParentRunID: parent, ParentBy: record.ParentNone},
		FoldVersion: compact.Version, Status: record.StatusRunning}
	o := &oracle{Run: fold.NewRun("t", id, id), th: th, given: rec}
	if p := th.folds[parent]; p != nil {
		rec.ParentBy = record.ParentExplicit
		if p.Fold.Ended() {
			rec.Base = parent
			o.from.Base = fold.At(p.Fold, lineage.History{})
			o.from.Parent = o.from.Base
		} else {
			o.from.Parent = fold.At(p.Fold, lineage.History{})
		}
	}
	th.folds[id] = o
	th.runs = append(th.runs, id)
}

// add puts a record of a run on the log.
func (th *thread) add(id string, kind record.Kind, value string) {
	th.t.Helper()
	o := th.folds[id]
	e := record.Event{Offset: int64(len(th.log)), Time: time.UnixMilli(int64(len(th.log))).UTC(),
		Headers: record.Headers{Kind: kind, RunID: id, Seq: -1}, Value: []byte(value)}
	th.log = append(th.log, e)
	loop := fold.NewLoop(o)
	_, outcome, err := loop.Next(&e)
	if err != nil {
		th.t.Fatal(err)
	}
	if folds(outcome) && !th.blind {
		th.at[id] = append(th.at[id], lineage.History{Messages: o.Fold.Messages(), State: o.Fold.State()})
	}
	if n := len(o.raw.Ranges); n > 0 && o.raw.Ranges[n-1][1] == e.Offset {
		o.raw.Ranges[n-1][1]++
	} else {
		o.raw.Ranges = append(o.raw.Ranges, [2]int64{e.Offset, e.Offset + 1})
	}
	o.raw.First, o.raw.Next = o.raw.Ranges[0][0], e.Offset+1
}

// records are those of the runs as they stand.
func (th *thread) records() []*record.Run {
	var all []*record.Run
	for _, id := range th.runs {
		o := th.folds[id]
		o.given.Raw.Ranges = o.raw.Ranges
		made, _ := o.Record(o.given, o.from, o.raw.First, o.raw.Next)
		all = append(all, made)
	}
	return all
}

func (th *thread) event(id, value string) { th.t.Helper(); th.add(id, record.KindEvent, value) }

// record adds the runs of a recording, each of which goes on from the one before.
func (th *thread) record(of recordings.Thread) {
	th.t.Helper()
	parent := ""
	for _, run := range of.Runs {
		th.run(run.RunID, parent)
		th.add(run.RunID, record.KindInput, string(run.Input))
		for _, line := range run.Lines() {
			th.event(run.RunID, string(line))
		}
		parent = run.RunID
	}
}

// history is that at the end of a run.
func (th *thread) history(run string) (lineage.History, error) {
	return fold.At(th.folds[run].Fold, lineage.History{}), nil
}

// read returns the timeline of a run; step by step takes the log in parts.
func (th *thread) read(run string, limit int64) *Reader {
	th.t.Helper()
	r, err := NewReader(th.records(), run, 0, limit, th.history)
	if err != nil {
		th.t.Fatal(err)
	}
	r.every = cmp.Or(th.every, r.every)
	th.take(r, int64(len(th.log)))
	return r
}

func (th *thread) take(r *Reader, end int64) {
	th.t.Helper()
	for _, part := range r.Ranges(end) {
		for _, e := range th.log[part[0]:part[1]] {
			if err := r.Take(e); err != nil {
				th.t.Fatal(err)
			}
		}
	}
	r.Taken(end)
}

// values gives what a timeline does not hold.
func (th *thread) values(s Step) []byte { return th.log[s.Offset].Value }

// check compares the timeline of a run with the histories that folding it gave, at the steps that sample picks, and the changes with
// what they lead to.
func (th *thread) check(r *Reader, run string, sample func(n int) bool) {
	t := th.t
	t.Helper()
	want := th.at[run]
	c, err := r.From(t.Context(), nil, -1, th.values)
	if err != nil {
		t.Fatal(err)
	}
	at, n := c.History(), -1
	var kept *Cursor
	for step := 0; step <= r.Len(); step++ {
		s, change, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if folds(s.Outcome) || step == 0 {
			n++
		}
		at = apply(t, at, change)
		th.same(fmt.Sprintf("%s: the changes up to step %d", run, step), at, want[n])
		if !sample(step) {
			continue
		}
		there, err := r.From(t.Context(), nil, step, th.values)
		if err != nil {
			t.Fatal(err)
		}
		if kept, err = r.From(t.Context(), kept, step, th.values); err != nil {
			t.Fatal(err)
		}
		if kept.Park(); kept.N() != step || there.N() != step {
			t.Fatalf("%s: the cursors behind step %d are behind steps %d and %d", run, step, kept.N(), there.N())
		}
		th.same(fmt.Sprintf("%s: step %d from an earlier one", run, step), kept.History(), want[n])
		th.same(fmt.Sprintf("%s: step %d", run, step), there.History(), want[n])
	}
	if n != len(want)-1 {
		t.Errorf("%s: %d steps are folded, want %d", run, n, len(want)-1)
	}
}

// same compares histories as records have them.
func (th *thread) same(what string, got, want lineage.History) {
	th.t.Helper()
	text := func(h lineage.History) string {
		var b strings.Builder
		for _, m := range h.Messages {
			b.Write(record.Compacted(m.Raw))
			b.WriteByte('\n')
		}
		return b.String()
	}
	// A patch writes members in an order of its own.
	if text(got) != text(want) || !sameJSON(th.t, got.State, want.State) {
		th.t.Fatalf("%s: got\n%s%s\nwant\n%s%s", what, text(got), got.State, text(want), want.State)
	}
}

func TestTimeline_AtEveryEventOfARecordingIsAFoldOfWhatCameBefore(t *testing.T) {
	for _, th := range recordings.All() {
		t.Run(th.String(), func(t *testing.T) {
			t.Parallel()
			made := newThread(t)
			made.every = 1
			made.record(th)
			for i, run := range th.Runs {
				made.check(made.read(run.RunID, 64<<20), run.RunID, func(n int) bool { return *everyEvent || n < 3 || n%37 == i })
			}
		})
	}
}

// long is a run whose one message and whose state grow by many events.
func long(t testing.TB, events int, blind bool) *thread {
	th := newThread(t)
	th.blind = blind
	th.run("r", "")
	th.add("r", record.KindInput, `{"threadId":"t","runId":"r","messages":[{"id":"u","role":"user","content":"go"}],"state":{"n":0}}`)
	th.event("r", `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`)
	th.event("r", `{"type":"TEXT_MESSAGE_START","messageId":"a"}`)
	for i := range events {
		switch i % 8 {
		case 5:
			th.event("r", fmt.Sprintf(`{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/n","value":%d}]}`, i))
		case 6:
			th.event("r", fmt.Sprintf(`{"type":"TOOL_CALL_CHUNK","toolCallId":"c%d","toolCallName":"f","delta":"{\"a\":"}`, i/100))
		case 7:
			th.event("r", fmt.Sprintf(`{"type":"CUSTOM","name":"c","value":"%0200d"}`, i))
		default:
			th.event("r", fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"word %d "}`, i))
		}
	}
	return th
}

func TestTimeline_HoldsNoMoreThanItMay(t *testing.T) {
	th := long(t, 3000, false)
	whole := th.read("r", 1<<40)
	if whole.bare || len(whole.marks) < 4 || whole.Bytes() > 4*int64(3000*150) {
		t.Fatalf("with room it holds %d bytes and has %d marks", whole.Bytes(), len(whole.marks))
	}
	bare := th.read("r", whole.Bytes()*3/4)
	if !bare.bare || bare.Bytes() > whole.Bytes()*3/4 {
		t.Errorf("with less room, it holds %d bytes", bare.Bytes())
	}
	th.check(bare, "r", func(n int) bool { return n%101 == 0 })
	if got := bare.Missing(nil, 1500, 1600); got[0] >= got[1] || got[1] != 1601 || got[0] < 1500-8*markEvery {
		t.Errorf("it lacks %v", got)
	}
	thin := th.read("r", 3010*stepBytes)
	if len(thin.marks) >= len(whole.marks) || thin.Bytes() > 3010*stepBytes {
		t.Errorf("with little room it holds %d bytes and has %d marks", thin.Bytes(), len(thin.marks))
	}
	th.check(thin, "r", func(n int) bool { return n%307 == 0 })
	r, err := NewReader(th.records(), "r", 0, 2000*stepBytes, th.history)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range th.log {
		if err = r.Take(e); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrTooLong) {
		t.Errorf("more steps than there is room for: %v", err)
	}
}

// What a cursor counts, before it is made and as long as it is kept, is no less than what it takes; what it goes on from is not read again.
func TestCursor_TakesNoMoreThanItCounts(t *testing.T) {
	partstest.SkipShort(t, "time for tests of scale")
	word := strings.Repeat("word ", 1<<20)
	numbers := strings.Repeat("0,", 1<<19) + "0"
	const small = 64 << 10 // what any fold takes
	for name, events := range map[string][]string{
		"one large message": {
			`{"type":"TEXT_MESSAGE_START","messageId":"a"}`,
			`{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"` + word + `"}`,
			`{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"` + word + `"}`,
			`{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"` + word + `"}`,
		},
		"arguments of a call": {
			`{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"f"}`,
			`{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"` + word + `"}`,
			`{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"` + word + `"}`,
		},
		"a state with white space that patches lead into": {
			`{"type":"STATE_SNAPSHOT","snapshot":{"a": "` + word + `","l":[` + numbers + `]}}`,
			`{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/l/400000","value":1},{"op":"remove","path":"/l/1"}]}`,
			`{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/l/7","value":2}]}`,
		},
		"a state that a patch copies to itself": {
			`{"type":"STATE_SNAPSHOT","snapshot":{"a":"` + word + `"}}`,
			`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/x","value":1}` +
				strings.Repeat(`,{"op":"copy","from":"","path":""},{"op":"replace","path":"/x","value":2},{"op":"move","from":"","path":""}`, 1000) + `]}`,
		},
		"a state that is mostly white space": {
			`{"type":"STATE_SNAPSHOT","snapshot":{"a":1,"l":[` + strings.Repeat("1, \n\t ", 1<<20) + `2]}}`,
			`{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/a","value":2}]}`,
		},
		"events that are no part of it": {
			`{"type":"CUSTOM","name":"n","value":"` + word + `"}`,
			`{"type":"CUSTOM","name":"n","value":"` + word + `"}`,
		},
		"a snapshot of many messages": {
			`{"type":"MESSAGES_SNAPSHOT","messages":[` + manyMessages(9_000) + `]}`,
			`{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":"` + word + `"}`,
		},
	} {
		for _, limit := range []int64{1 << 30, 1 << 20} {
			t.Run(fmt.Sprintf("%s within %d", name, limit), func(t *testing.T) {
				th := newThread(t)
				th.blind = true
				th.run("r", "")
				th.event("r", `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`)
				for _, value := range events {
					th.event("r", value)
				}
				th.event("r", `{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`)
				r := th.read("r", limit)
				for n := 1; n <= r.Len(); n++ {
					before, counted := heap(), r.CursorBytes(nil, n)
					c, err := r.From(t.Context(), nil, n, th.values)
					if err != nil {
						t.Fatal(err)
					}
					c.History()
					c.Park()
					took := heap() - before
					t.Logf("step %d: %d KiB taken, %d KiB counted before and %d KiB behind it", n, took>>10, counted>>10, c.Bytes()>>10)
					if took > counted+small || took > c.Bytes()+small {
						t.Errorf("step %d: it takes %d bytes, and counts %d before and %d behind it", n, took, counted, c.Bytes())
					}
					if got := r.Missing(c, n, n); got[0] < got[1] {
						t.Errorf("step %d: a cursor that is there reads %v", n, got)
					}
					if got := r.Missing(c, n, n+1); got[1]-got[0] > 1 {
						t.Errorf("step %d: a cursor that goes to the next one reads %v", n, got)
					}
					if n == r.Len() {
						continue
					}
					before, counted = heap(), r.CursorBytes(nil, n)+r.FoldingBytes(n, n+1)
					if c, err = r.From(t.Context(), nil, n, th.values); err != nil {
						t.Fatal(err)
					}
					_, change, err := c.Next()
					if err != nil {
						t.Fatal(err)
					}
					c.History()
					c.Park()
					took = heap() - before
					if counted += int64(change.Bytes()); took > counted+small {
						t.Errorf("step %d with its change takes %d bytes, and counts %d", n+1, took, counted)
					}
				}
			})
		}
	}
}

func manyMessages(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `%s{"id":"m%d","role":"assistant","content":"a"}`, strings.Repeat(",", min(i, 1)), i)
	}
	return b.String()
}

// heap is how much of it is in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A cursor that goes through a run counts what it holds, not all that the run has: it sets out again from each mark.
func TestCursor_CountsNoMoreInALongRun(t *testing.T) {
	partstest.SkipShort(t, "time for tests of scale")
	th := long(t, 6000, true)
	r := th.read("r", 1<<30)
	var c *Cursor
	most := int64(0)
	for n := range r.Len() + 1 {
		var err error
		if c, err = r.From(t.Context(), c, n, nil); err != nil {
			t.Fatal(err)
		}
		most = max(most, c.Bytes())
	}
	if most > r.Bytes() {
		t.Errorf("a cursor counts %d bytes, the whole run %d", most, r.Bytes())
	}
}

// A run that goes on is read as far as the log goes, in parts, whatever its record tells of.
func TestReader_GoesOnWhereItWas(t *testing.T) {
	th := long(t, 700, false)
	r, err := NewReader(th.records(), "r", 0, 1<<30, th.history)
	if err != nil {
		t.Fatal(err)
	}
	for end := int64(1); end < int64(len(th.log)); end += 97 {
		th.take(r, end)
		if r.Done() || r.Next() != end {
			t.Fatalf("with a log of %d records, next is %d", end, r.Next())
		}
	}
	th.event("r", `{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`)
	r.Update(th.records())
	th.take(r, int64(len(th.log)))
	if !r.Done() {
		t.Error("it is not done behind the run's end")
	}
	th.check(r, "r", func(n int) bool { return n%53 == 0 })
}

func TestReader_StartsFromAParentThatGoesOn(t *testing.T) {
	th := newThread(t)
	th.run("p", "")
	th.event("p", `{"type":"RUN_STARTED","threadId":"t","runId":"p"}`)
	th.event("p", `{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":"one "}`)
	th.run("c", "p")
	th.add("c", record.KindInput, `{"threadId":"t","runId":"c","parentRunId":"p","messages":[{"id":"a","role":"assistant","content":"one "},{"id":"u","role":"user","content":"?"}]}`)
	th.event("c", `not an event`)
	th.event("c", `{"type":"RUN_STARTED","threadId":"t","runId":"c"}`)
	th.event("p", `{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":"two"}`)
	th.event("c", `{"type":"STATE_SNAPSHOT","snapshot":{ "a" : 1 }}`)
	th.add("c", record.KindInput, `{"threadId":"t","runId":"c","messages":[]}`)
	th.event("p", `{"type":"RUN_FINISHED","threadId":"t","runId":"p"}`)
	th.event("c", `{"type":"RUN_FINISHED","threadId":"t","runId":"c"}`)
	r := th.read("c", 1<<20)
	th.check(r, "c", func(int) bool { return true })
	var got []string
	for n := range r.Len() + 1 {
		s := r.Step(n)
		got = append(got, fmt.Sprintf("%d %d %s %s %s", n, s.Offset, s.Kind, s.Outcome, s.Type()))
	}
	if want := []string{"0 2 input input ", "1 3 event malformed ", "2 4 event folded RUN_STARTED", "3 6 event folded STATE_SNAPSHOT",
		"4 7 input input ", "5 9 event folded RUN_FINISHED"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	c, err := r.From(t.Context(), nil, -1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, change, err := c.Next(); err != nil || len(change.Messages) != 1 || change.Messages[0].MessageID != "u" {
		t.Errorf("the input changes %+v (%v)", change, err)
	}
}

// Events that name no run belong to another one once that has begun, of which no record tells yet.
func TestReader_StopsWhereAnotherRunMayHaveBegun(t *testing.T) {
	th := newThread(t)
	th.run("r", "")
	th.event("r", `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`)
	th.event("r", `{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":"one"}`)
	told := []*record.Run{th.records()[0]}
	th.run("s", "")
	th.event("s", `{"type":"RUN_STARTED","threadId":"t","runId":"s"}`)
	th.event("s", `{"type":"TEXT_MESSAGE_CHUNK","messageId":"b","delta":"two"}`)
	th.event("r", `{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":" more"}`)
	th.event("s", `{"type":"TEXT_MESSAGE_CHUNK","messageId":"b","delta":"three"}`)
	th.event("r", `{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":" and more"}`)
	for i := range th.log {
		if i == 3 || i == 5 {
			th.log[i].Headers.RunID = ""
		}
	}
	r, err := NewReader(told, "r", 0, 1<<20, th.history)
	if err != nil {
		t.Fatal(err)
	}
	th.take(r, int64(len(th.log)))
	if r.Len() != 2 || r.Next() != 3 || r.Done() {
		t.Fatalf("it has %d steps and goes on at %d", r.Len(), r.Next())
	}
	r.Update(th.records())
	th.take(r, int64(len(th.log)))
	if r.Len() != 4 || r.Next() != int64(len(th.log)) {
		t.Fatalf("it has %d steps and goes on at %d", r.Len(), r.Next())
	}
	th.check(r, "r", func(int) bool { return true })
}

func TestReader_SaysWhatIsGone(t *testing.T) {
	th := long(t, 10, false)
	var why *fold.StartError
	if _, err := NewReader(th.records(), "r", 1, 1<<20, th.history); !asStart(err, &why) || !why.Gone {
		t.Errorf("the error is %v", err)
	}
	if _, err := NewReader(th.records(), "other", 0, 1<<20, th.history); err == nil || asStart(err, &why) {
		t.Errorf("the error is %v", err)
	}
}

func asStart(err error, why **fold.StartError) bool { return errors.As(err, why) }

func sameJSON(t testing.TB, a, b json.RawMessage) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}
