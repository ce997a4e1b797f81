package live

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// What becomes of a record beside the outcomes of package fold.
const (
	// Recorded: the run's record holds it.
	Recorded fold.Outcome = "recorded"
	// Late: it came after its run's terminal event.
	Late fold.Outcome = "late"
	// NoRun: it belongs to no run, and begins none.
	NoRun fold.Outcome = "no-run"
)

// Source gives what the records say of a thread's runs.
type Source interface {
	// Record returns the record of a run that has not ended, whole.
	Record(run string) (*record.Run, error)
	// History returns the history that a run's record tells.
	History(run string) (lineage.History, error)
	// Holding returns the runs, sealed or abandoned, whose records have a message of one of these ids as their own.
	Holding(messageIDs []string) (runs []string, err error)
}

// Thread is a thread of which raw records come in. It is not safe for concurrent use.
type Thread struct {
	id     string
	source Source
	loop   *fold.Loop
	from   int64

	runs     map[string]*Run
	byStart  []*Run
	byClient map[string][]*Run // by the id that the agent uses, by start
	lineage  *lineage.Thread
	said     lineage.Said
	current  *Run // the run of the last record; it may not be one of runs yet
}

// Run is a run of a Thread.
type Run struct {
	// Head is where the run stands. Before its first event that is not decided.
	Head lineage.Run
	// Record is the run's record, which may lack contents; nil where the run has none yet.
	Record *record.Run
	// Next is the offset after the last record that is known to be the run's.
	Next int64

	folding *fold.Run // nil where nothing has come since the record, or the record is final
	// recorded is below which offset the record holds what is the run's.
	recorded int64
	// decided is what the run starts from; recordSays that its record says so, before its first event.
	decided    *start
	recordSays bool
	// again folds what the record holds once more, to tell what became of each event; nil where all were folded.
	again           *fold.Run
	steady, replays bool
}

// start is where a run belongs, and the history that it goes on from.
type start struct {
	lineage.Placement
	parent lineage.History
}

// Final reports whether nothing more will come of the run.
func (r *Run) Final() bool { return r.Head.Sealed }

// Begun reports whether an event of the run was folded.
func (r *Run) Begun() bool {
	return r.Fold() != nil || r.Record != nil && !r.Record.InputOnly()
}

// Fold is the run's fold as it stands; nil where it is in the record only, or nothing was folded.
func (r *Run) Fold() *compact.Run {
	if r.folding == nil {
		return nil
	}
	return r.folding.Fold
}

// NextSeq is the number behind the greatest that the run's producer has given; -1 where it gives none.
func (r *Run) NextSeq() int64 {
	if r.folding != nil {
		return r.folding.Seq.Next
	}
	return r.Record.Raw.NextSeq
}

// New returns a thread of these runs. Every event below indexed is in one of the records, or in none.
func New(id string, records []*record.Run, indexed int64, source Source) (*Thread, error) {
	t := &Thread{
		id: id, source: source, from: indexed, runs: make(map[string]*Run, len(records)), byClient: map[string][]*Run{}, said: lineage.Said{},
	}
	t.loop = fold.NewLoop(t)
	var err error
	if t.lineage, err = lineage.NewThread(); err != nil {
		return nil, err
	}
	t.lineage.Tell(t)
	for _, rec := range records {
		r := &Run{Head: fold.LineageOf(rec), Record: rec, Next: rec.Raw.Next, recorded: rec.Raw.Next, steady: fold.Steady(rec)}
		if err := r.Head.HistoryKey.UnmarshalText([]byte(rec.HistoryKey)); err != nil {
			return nil, fmt.Errorf("following thread: %w", err)
		}
		t.add(r)
		if rec.Status == record.StatusRunning { // an abandoned one goes on only where an event comes
			t.from = min(t.from, rec.Raw.Next)
			if err := t.load(r); err != nil {
				return nil, err
			}
		} else if !rec.InputOnly() || r.Final() {
			if err := t.lineage.Add(r.Head); err != nil {
				return nil, fmt.Errorf("following thread: %w", err)
			}
		}
	}
	return t, nil
}

// From is the first offset from which the thread needs its raw records.
func (t *Thread) From() int64 { return t.from }

// Run returns a run by its id; nil where there is none yet.
func (t *Thread) Run(id string) *Run { return t.runs[id] }

// Runs are those of the thread, by start.
func (t *Thread) Runs() []*Run { return t.byStart }

// Open reports whether a run goes on.
func (t *Thread) Open() bool {
	return slices.ContainsFunc(t.byStart, func(r *Run) bool { return r.Head.Open() })
}

// Replay has Take tell what became of the events that the run's record holds, in the place of Recorded, where it gets
// them. It returns the first of the run's offsets that it needs for what lies at an offset and behind.
func (t *Thread) Replay(r *Run, offset int64) (from int64) {
	r.replays = true
	if r.steady {
		return offset
	}
	r.again = fold.NewRun(t.id, r.Head.ID, r.Head.ClientRunID())
	return r.Record.Raw.First
}

// Take takes the thread's next record, and returns the run that it belongs to (nil: none) and what became of it. Errors are
// those of the source.
func (t *Thread) Take(e record.Event) (*Run, fold.Outcome, error) {
	taken, outcome, err := t.loop.Next(e)
	r := t.current
	if err != nil || taken == nil || r == nil || taken == r.again {
		return r, outcome, err
	}
	fresh := t.runs[r.Head.ID] != r
	if fresh && outcome == fold.Malformed { // it begins nothing
		return nil, outcome, nil
	}
	r.Next = e.Offset + 1
	if fresh {
		t.add(r)
	}
	if outcome == fold.Folded || outcome == fold.SyntheticEnd {
		err = t.show(r)
	}
	return r, outcome, err
}

// add takes a run in.
func (t *Thread) add(r *Run) {
	byStart := func(a, b *Run) int { return cmp.Compare(a.Head.Start, b.Head.Start) }
	at, _ := slices.BinarySearchFunc(t.byStart, r, byStart)
	t.runs[r.Head.ID], t.byStart = r, slices.Insert(t.byStart, at, r)
	same := t.byClient[r.Head.ClientRunID()]
	at, _ = slices.BinarySearchFunc(same, r, byStart)
	t.byClient[r.Head.ClientRunID()] = slices.Insert(same, at, r)
}

// show lets runs that are placed later see how the run stands.
func (t *Thread) show(r *Run) error {
	f := r.folding.Fold
	if r.decided != nil {
		first := r.Head.Start // that of its input, if one came
		r.Head, r.decided = r.decided.Run, nil
		r.Head.Start = first
	}
	if !f.Ended() {
		r.Head.Status, r.Head.End, r.Head.Sealed, r.Head.Synthetic = lineage.StatusRunning, -1, false, false
		if err := t.lineage.AddLive(r.Head, f.Messages); err != nil {
			return fmt.Errorf("following thread: %w", err)
		}
		return nil
	}
	messages := f.Messages()
	r.Head.Status, r.Head.End, r.Head.Sealed = lineage.Status(f.Summary().Status), r.Next-1, true
	r.Head.HistoryKey, r.Head.MessageCount = lineage.KeyOf(messages), len(messages)
	t.said.Add(r.Head.End, messages)
	if err := t.lineage.Add(r.Head); err != nil {
		return fmt.Errorf("following thread: %w", err)
	}
	return nil
}

// Find implements fold.Runs, by the rules of the compactor.
func (t *Thread) Find(d *fold.Decoded) (*fold.Run, fold.Outcome, error) {
	id, malformed, r := d.ClientRunID(), isMalformed(d), (*Run)(nil)
	if id != "" {
		r = t.named(id, d.Offset)
	} else if d.Headers.Kind != record.KindInput {
		r = t.unnamed(d.Offset)
	}
	t.current = r
	switch {
	case r != nil && d.Offset < r.recorded:
		return r.replay(d)
	case r != nil && r.Final() && !r.startsAgain(d):
		return nil, Late, nil
	case r == nil || r.Final():
		t.current = nil
		if id == "" || malformed {
			return nil, NoRun, nil
		}
		r = t.begin(id, d.Offset)
		t.current = r
	case r.folding == nil:
		if err := t.load(r); err != nil {
			return nil, "", err
		}
	}
	return r.folding, "", nil
}

// isMalformed reports whether a record's value is neither an event nor an input: that costs the record.
func isMalformed(d *fold.Decoded) bool { return d.Malformed() != nil }

// replay tells what became of an event that the run's record holds.
func (r *Run) replay(d *fold.Decoded) (*fold.Run, fold.Outcome, error) {
	switch {
	case !r.replays:
		return nil, Recorded, nil
	case r.again != nil:
		return r.again, "", nil
	case d.Headers.Kind == record.KindInput:
		return nil, fold.Input, nil
	case isMalformed(d):
		return nil, fold.Malformed, nil
	case d.SyntheticEnd():
		return nil, fold.SyntheticEnd, nil
	}
	return nil, fold.Folded, nil
}

// named returns the run that an agent's id means at an offset: the latest that started there or before.
func (t *Thread) named(id string, offset int64) *Run {
	for _, r := range slices.Backward(t.byClient[id]) {
		if r.Head.Start <= offset {
			return r
		}
	}
	return nil
}

// unnamed returns the run of an event that names none: of those that started at or before the offset and had not ended
// before it, the one with the greatest start.
func (t *Thread) unnamed(offset int64) *Run {
	for _, r := range slices.Backward(t.byStart) {
		if r.Head.Start <= offset && (!r.Final() || r.Next > offset) {
			return r
		}
	}
	return nil
}

// startsAgain reports whether a record of a sealed run's id begins another run: a RUN_STARTED that is not the one which
// the run had, or an input. A producer that numbers its events sends the same ones again after a broken connection.
func (r *Run) startsAgain(d *fold.Decoded) bool {
	if d.Malformed() != nil {
		return false
	}
	if d.Headers.Kind == record.KindInput {
		return r.NextSeq() < 0 || r.inputSHA256() != d.SHA256()
	}
	ev := d.Payload()
	if ev.Type != agui.RunStarted {
		return false
	}
	return !fold.Behind(d.Headers.Seq, r.NextSeq()) ||
		!bytes.Equal(record.Compacted(agui.Without(ev.Body, agui.FieldInput.String())), record.Compacted(r.started()))
}

func (r *Run) inputSHA256() string {
	if r.folding != nil {
		return r.folding.InputSHA256
	}
	return r.Record.InputSHA256
}

func (r *Run) started() []byte {
	if f := r.Fold(); f != nil {
		return f.Summary().Started
	}
	return r.Record.Started
}

// begin returns a run of an agent's id that starts at the offset. Where another run has that id or had it from its agent, its
// own is the one with "~2", "~3", … that is free; one that leaves no room for the number is cut before it.
func (t *Thread) begin(clientID string, offset int64) *Run {
	id := clientID
	for n := 2; t.runs[id] != nil || id != clientID && len(t.byClient[id]) > 0; n++ {
		number := "~" + strconv.Itoa(n)
		front := clientID[:min(len(clientID), record.MaxIDBytes-len(number))]
		if len(front) < len(clientID) {
			front = strings.ToValidUTF8(front, "")
		}
		id = front + number
	}
	r := &Run{folding: fold.NewRun(t.id, id, clientID)}
	r.Head = lineage.Run{ID: id, Start: offset, End: -1, Status: lineage.StatusRunning}
	if id != clientID {
		r.Head.ClientID = clientID
	}
	return r
}

// load takes up the fold of a run from its record.
func (t *Thread) load(r *Run) error {
	rec, err := t.source.Record(r.Head.ID)
	if err != nil {
		return err
	}
	if rec.Open == nil || rec.Raw.Next != r.recorded {
		return fmt.Errorf("following run %q: %w", rec.RunID, errNotOpen)
	}
	f := fold.NewRun(t.id, r.Head.ID, r.Head.ClientRunID())
	f.Seq = fold.Sequence{Next: rec.Raw.NextSeq, Missing: rec.Open.MissingSeqs}
	f.InputSHA256 = rec.InputSHA256
	base := lineage.History{}
	if rec.Base != "" {
		if base, err = t.source.History(rec.Base); err != nil {
			return err
		}
	}
	at, err := lineage.RestoreFrom(base, lineage.Content{RunID: rec.RunID, Base: rec.Base, Messages: rec.Messages, Layout: rec.Layout, State: rec.State})
	if err != nil {
		return fmt.Errorf("following run %q: %w", rec.RunID, err)
	}
	r.folding = f
	if rec.Open.Pending {
		f.Early = fold.NotEmpty(rec.Stats.Anomalies)
		if f.Early == nil {
			f.Early = map[string]int64{}
		}
		if f.Input, err = fold.PendingInput(rec); err != nil {
			return fmt.Errorf("following run %q: %w", rec.RunID, err)
		}
		if rec.Open.Placed {
			if rec.Base != "" {
				at = base
			}
			r.decided = &start{Placement: lineage.Placement{Run: r.Head}, parent: at}
			r.recordSays = true
			r.decided.Run.End, r.decided.Run.Status, r.decided.Run.Sealed = -1, lineage.StatusRunning, false
		}
		return nil
	}
	if f.Fold, err = compact.Resume(at.Messages, at.State, rec.Open.Fold); err != nil {
		return fmt.Errorf("following run %q: %w", rec.RunID, err)
	}
	return t.show(r)
}

var errNotOpen = errors.New("its record is not that of a run that goes on")

// Begin implements fold.Runs.
func (t *Thread) Begin(f *fold.Run, first *fold.Decoded, input *agui.RunAgentInput) (*compact.Run, error) {
	r := t.current
	if f == r.again { // what can be folded does not depend on the messages and state before the run
		return compact.New(nil, nil), nil
	}
	if !r.recordSays {
		at, err := t.place(r, first, input)
		if err != nil {
			return nil, err
		}
		r.decided = at
	}
	begun, _ := fold.Start(r.Head.ID, r.decided.Run.ParentBy, r.decided.parent, input, agui.Families(0))
	return begun, nil
}

func (t *Thread) place(r *Run, first *fold.Decoded, input *agui.RunAgentInput) (*start, error) {
	s := lineage.Start{RunID: r.Head.ID, ClientID: r.Head.ClientRunID(), Offset: first.Offset, Input: input}
	if ev := first.Payload(); ev.Type == agui.RunStarted {
		s.ParentRunID = ev.ParentRunID
	}
	if input != nil {
		s.ParentRunID = cmp.Or(s.ParentRunID, input.ParentRunID)
	}
	at := &start{}
	var err error
	if at.Placement, err = t.lineage.Place(s); err != nil || at.Run.Parent == "" {
		return at, err
	}
	if f := t.runs[at.Run.Parent].Fold(); f != nil {
		at.parent = lineage.History{Messages: f.Messages(), State: f.State()}
		return at, nil
	}
	at.parent, err = t.source.History(at.Run.Parent)
	return at, err
}

// Any implements lineage.Known.
func (t *Thread) Any(ids []string, offset int64) (bool, error) {
	if known, err := t.said.Any(ids, offset); known || err != nil {
		return known, err
	}
	runs, err := t.source.Holding(ids)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(runs, func(id string) bool {
		r := t.runs[id]
		return r != nil && r.Head.Start < offset && !r.Head.Open()
	}), nil
}
