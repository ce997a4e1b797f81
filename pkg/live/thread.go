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

// The outcomes of a record beside those of package fold.
const (
	// Recorded: the run's record covers it.
	Recorded fold.Outcome = "recorded"
	// Late: it came after its run's terminal event.
	Late fold.Outcome = "late"
	// NoRun: it belongs to no run and begins none.
	NoRun fold.Outcome = "no-run"
)

// Source reads the records of a thread's runs.
type Source interface {
	// Record returns the whole record of a run that has not ended.
	Record(run string) (*record.Run, error)
	// History returns the history at the end of a run, from its record.
	History(run string) (lineage.History, error)
	// Holding returns the sealed and abandoned runs that own a message with one of these ids.
	Holding(messageIDs []string) (runs []string, err error)
}

// Thread is a thread that takes in raw records. It is not safe for concurrent use.
type Thread struct {
	id     string
	source Source
	loop   *fold.Loop
	from   int64

	runs     map[string]*Run
	byStart  []*Run
	byClient map[string][]*Run // by client run id, in the order of their starts
	lineage  *lineage.Thread
	said     lineage.Said
	current  *Run // the run of the last record, which may not be in runs yet
	bytes    int64
}

// Run is a run of a Thread.
type Run struct {
	// Head is the run's place in the lineage. It is decided at the run's first event.
	Head lineage.Run
	// Record is the run's record, which may lack contents; nil if the run has none yet.
	Record *record.Run
	// Next is the offset after the last known record of the run.
	Next int64

	folding *fold.Run // nil if nothing has come since the record, or the record is final
	// recorded is the offset below which the record covers everything of the run.
	recorded int64
	// decided is what the run starts from. recordSays means that its record decided it before the run's first event.
	decided    *start
	recordSays bool
	// again folds the recorded events once more to find the outcome of each; nil if all of them were folded.
	again           *fold.Run
	steady, replays bool
	// weight is that of the fold, weightAgain that of again's.
	weight, weightAgain weight
}

// weight is about how much memory a fold holds.
type weight struct {
	// text is about how long its messages and state are; at which text they are measured again.
	text, at int64
	// bytes is the part of Thread.Bytes that is the fold's.
	bytes int64
}

// add notes that an event of so many bytes was folded, or a fold resumed, and returns by how much the fold has grown.
func (w *weight) add(f *compact.Run, event int) int64 {
	if w.text += int64(event); w.text >= w.at { // not all that came has stayed: snapshots replace, and RAW leaves nothing
		w.text = int64(len(f.State()))
		for _, m := range f.Messages() {
			w.text += int64(len(m.Raw))
		}
		w.at = 2*w.text + weighEvery
	}
	had := w.bytes
	w.bytes = foldedMessage*int64(f.MessageCount()) + 2*w.text
	return w.bytes - had
}

// start is the place of a run and the history that it continues.
type start struct {
	lineage.Placement
	parent lineage.History
}

// Final reports whether the run is sealed: later events do not change it.
func (r *Run) Final() bool { return r.Head.Sealed }

// Begun reports whether an event of the run was folded.
func (r *Run) Begun() bool {
	return r.Fold() != nil || r.Record != nil && !r.Record.InputOnly()
}

// Fold returns the run's current fold; nil if only the record has it, or nothing was folded.
func (r *Run) Fold() *compact.Run {
	if r.folding == nil {
		return nil
	}
	return r.folding.Fold
}

// NextSeq is the producer's next sequence number for the run; -1 if the producer does not number events.
func (r *Run) NextSeq() int64 {
	if r.folding != nil {
		return r.folding.Seq.Next
	}
	return r.Record.Raw.NextSeq
}

// New returns a thread of these runs. The records are complete below the offset indexed: an event below it that no record covers belongs to no run.
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

// Open reports whether any run of the thread is open.
func (t *Thread) Open() bool {
	return slices.ContainsFunc(t.byStart, func(r *Run) bool { return r.Head.Open() })
}

// Replay makes Take return the outcome of recorded events of the run in place of Recorded. It returns the offset from which Take needs the
// run's records to know the outcomes from the given offset on.
func (t *Thread) Replay(r *Run, offset int64) (from int64) {
	r.replays = true
	if r.steady {
		return offset
	}
	r.again = fold.NewRun(t.id, r.Head.ID, r.Head.ClientRunID())
	return r.Record.Raw.First
}

// Take takes in the thread's next record and returns its run (nil if it has none) and its outcome. Errors are those of the
// source.
func (t *Thread) Take(e record.Event) (*Run, fold.Outcome, error) {
	taken, outcome, err := t.loop.Next(e)
	r := t.current
	if err == nil && r != nil && taken != nil && taken == r.again && taken.Fold != nil {
		t.bytes += r.weightAgain.add(taken.Fold, len(e.Value))
	}
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
		t.bytes += r.weight.add(r.Fold(), len(e.Value))
		err = t.show(r)
	}
	return r, outcome, err
}

// weighEvery is how much text may come, beside as much as a fold had, before it is measured again.
const weighEvery = 16 << 10

// foldedMessage is about how much memory a message takes in a fold beside its text.
const foldedMessage = 768

// Bytes is about how much memory the folds of the thread's runs hold.
func (t *Thread) Bytes() int64 { return t.bytes }

// add adds a run to the thread.
func (t *Thread) add(r *Run) {
	byStart := func(a, b *Run) int { return cmp.Compare(a.Head.Start, b.Head.Start) }
	at, _ := slices.BinarySearchFunc(t.byStart, r, byStart)
	t.runs[r.Head.ID], t.byStart = r, slices.Insert(t.byStart, at, r)
	same := t.byClient[r.Head.ClientRunID()]
	at, _ = slices.BinarySearchFunc(same, r, byStart)
	t.byClient[r.Head.ClientRunID()] = slices.Insert(same, at, r)
}

// show updates the lineage with the run's current fold, so that later runs can be placed.
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

// isMalformed reports whether a record's value is neither an event nor an input.
func isMalformed(d *fold.Decoded) bool { return d.Malformed() != nil }

// replay returns the outcome of an event that the run's record covers.
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

// named returns the run that a client run id means at an offset: the latest one that started at or before it.
func (t *Thread) named(id string, offset int64) *Run {
	for _, r := range slices.Backward(t.byClient[id]) {
		if r.Head.Start <= offset {
			return r
		}
	}
	return nil
}

// unnamed returns the run of an event without a run id: of the runs that started at or before the offset and had not ended
// before it, the one with the greatest start.
func (t *Thread) unnamed(offset int64) *Run {
	for _, r := range slices.Backward(t.byStart) {
		if r.Head.Start <= offset && (!r.Final() || r.Next > offset) {
			return r
		}
	}
	return nil
}

// startsAgain reports whether a record with the id of a sealed run begins another run: an input, or a RUN_STARTED that differs
// from the run's own. The same one may come again, when a producer that numbers its events resends them after a broken connection.
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

// begin returns a new run of a client run id that starts at the offset. If the id is taken, the run's own id is the first free one of
// "id~2", "id~3", …, with the id cut if it leaves no room for the number.
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

// load resumes the fold of a run from its record.
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
	f.Fold.Keep(agui.NoFamilies)
	t.bytes += r.weight.add(f.Fold, 0)
	return t.show(r)
}

var errNotOpen = errors.New("its record is not that of an open run")

// Begin implements fold.Runs.
func (t *Thread) Begin(f *fold.Run, first *fold.Decoded, input *agui.RunAgentInput) (*compact.Run, error) {
	r := t.current
	if f == r.again { // whether an event can be folded does not depend on the history before the run
		outcomes := compact.New(nil, nil)
		outcomes.Keep(agui.NoFamilies)
		return outcomes, nil
	}
	if !r.recordSays {
		at, err := t.place(r, first, input)
		if err != nil {
			return nil, err
		}
		r.decided = at
	}
	begun, _ := fold.Start(r.Head.ID, r.decided.Run.ParentBy, r.decided.parent, input, agui.NoFamilies)
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
