package live

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
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

// Thread folds the raw records of one thread. It is not safe for concurrent use.
type Thread struct {
	*fold.Thread[*Run]
	id     string
	source Source
	whole  bool
	loop   *fold.Loop
	from   int64
	known  lineage.KnownMessages
	bytes  int64
}

// Run is a run of a Thread.
type Run struct {
	fold.Metadata
	// Record is the run's record, which may lack contents; nil if the run has none yet.
	Record *record.Run
	// LateError is the run's late error, from its record or from the log; nil if none came.
	LateError *record.LateError

	folding *fold.Run // nil if the record is final, or nothing came after it
	// base is the history that the run's record is encoded relative to. last is that record without contents, with its parent resolution, and
	// ranges contain every record of the run; both only in a whole Thread.
	last   *record.Run
	base   lineage.History
	ranges record.Ranges
	// again finds the outcomes of recorded events; nil unless Replay was called.
	again *fold.Outcomes
	// weight is the weight of the fold, weightAgain that of again's fold.
	weight, weightAgain weight
}

// weight estimates the memory of a fold.
type weight struct {
	// text is the approximate length of messages, state and kept events, in bytes; add measures them once text reaches the threshold at.
	text, at int64
	// bytes is the fold's part of Thread.Bytes.
	bytes int64
}

// add counts a folded event and returns by how much the fold's memory has grown. The argument event is the event's size
// in bytes; 0 is for a resumed fold.
func (w *weight) add(f *compact.Run, event int) int64 {
	if w.text += int64(event); w.text >= w.at { // not all bytes stay: snapshots replace others, and RAW events leave nothing
		w.text = int64(len(f.State()))
		for _, m := range f.Messages() {
			w.text += int64(len(m.Raw))
		}
		for _, e := range f.Summary().Kept {
			w.text += int64(len(e))
		}
		w.at = 2*w.text + weighEvery
	}
	had := w.bytes
	w.bytes = foldedMessage*int64(f.MessageCount()) + 2*w.text
	return w.bytes - had
}

// Begun reports whether an event of the run was folded.
func (r *Run) Begun() bool {
	return r.Fold() != nil || r.Record != nil && !r.Record.InputOnly()
}

// Fold returns the run's current fold; nil if only the record has its contents, or nothing was folded.
func (r *Run) Fold() *compact.Run {
	if r.folding == nil {
		return nil
	}
	return r.folding.Fold
}

// New returns a thread of these runs. The records must be complete below the offset indexed: an event below it that no
// record covers belongs to no run. A whole thread keeps what Current needs.
func New(id string, records []*record.Run, indexed int64, source Source, whole bool) (*Thread, error) {
	t := &Thread{id: id, source: source, whole: whole, from: indexed, known: lineage.KnownMessages{}}
	runs := make([]*Run, len(records))
	for i, rec := range records {
		m := fold.Metadata{Run: fold.LineageOf(rec), Next: rec.Raw.Next, NextSeq: rec.Raw.NextSeq}
		m.Pending = rec.InputOnly() && !m.Sealed
		if err := m.HistoryKey.UnmarshalText([]byte(rec.HistoryKey)); err != nil {
			return nil, fmt.Errorf("following thread: %w", err)
		}
		runs[i] = &Run{Metadata: m, Record: rec, LateError: rec.LateError}
	}
	var err error
	if t.Thread, err = fold.NewThread(fold.Settings{Keep: agui.NoFamilies}, t, runs...); err != nil {
		return nil, fmt.Errorf("following thread: %w", err)
	}
	t.loop = fold.NewLoop(t)
	t.Lineage.SetKnown(t)
	for _, r := range t.Unsealed() {
		if !r.Open() { // an abandoned run is resumed only at its next event
			continue
		}
		t.from = min(t.from, r.Next)
		if _, err := t.Resume(r); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Begin is that of fold.Thread, but keeps the events that the run's record keeps.
func (t *Thread) Begin(r *fold.Run, first *fold.Decoded, input *agui.RunAgentInput) (*compact.Run, error) {
	f, err := t.Thread.Begin(r, first, input)
	if last := t.Member.last; err == nil && last != nil {
		f.Keep(last.Kept)
	}
	return f, err
}

// Find is that of fold.Thread, except that what ingest must have signed, and no record includes, belongs to no run: the compactor has
// refused it. A record's late error is from before signatures were required.
func (t *Thread) Find(d *fold.Decoded) (*fold.Run, fold.Outcome, error) {
	if d.Signature == record.SignatureWrong {
		m := t.Of(d)
		if m == nil || d.Offset >= m.Next && (m.LateError == nil || m.LateError.Offset != d.Offset) {
			t.Member, t.IsNew, t.Resolution = nil, false, nil
			return nil, fold.NoRun, nil
		}
	}
	return t.Thread.Find(d)
}

// From returns the first offset from which the thread needs its raw records.
func (t *Thread) From() int64 { return t.from }

// Open reports whether any run of the thread is open.
func (t *Thread) Open() bool {
	return slices.ContainsFunc(t.Unsealed(), func(r *Run) bool { return r.Metadata.Open() })
}

// Replay makes Take return the real outcome of events that the run's record covers, in place of fold.Covered. To know
// the outcomes from the given offset on, Take needs the run's raw records from the returned offset on.
func (t *Thread) Replay(r *Run, offset int64) (from int64) {
	r.again = fold.NewOutcomes(r.Record)
	if r.again.Steady() {
		return offset
	}
	return r.Record.Raw.First
}

// Take processes the thread's next record. It returns the record's run (nil if it has none) and its outcome. A late error has
// the outcome fold.LateError even if the run's record has it. Take's errors are those of the source.
func (t *Thread) Take(e record.Event) (*Run, fold.Outcome, error) {
	taken, outcome, err := t.loop.Next(&e)
	r := t.Member
	switch {
	case err != nil:
		return nil, "", err
	case outcome == fold.Covered && r.again != nil && e.Offset < r.Record.Raw.Next && r.again.LeavesOut(t.loop.Decoded()):
		return nil, fold.NoRun, nil // the run's record does not include it
	case outcome == fold.Covered && r.again != nil:
		outcome, err = r.again.Of(t.loop.Decoded())
		if f := r.again.Fold(); f != nil {
			t.bytes += r.weightAgain.add(f, len(e.Value))
		}
		return r, outcome, err
	case outcome == fold.LateError:
		r.Status = lineage.StatusError
		r.LateError = &record.LateError{Offset: e.Offset, Event: bytes.Clone(t.loop.Decoded().Payload().Body)}
		return r, outcome, nil
	case outcome == fold.SecondTerminal && r.LateError != nil && r.LateError.Offset == e.Offset:
		return r, fold.LateError, nil
	case taken == nil:
		return r, outcome, nil
	case t.IsNew && outcome == fold.Malformed: // a malformed event begins no run
		return nil, outcome, nil
	}
	r.Next, r.NextSeq = e.Offset+1, taken.Seq.Next
	if r.last != nil {
		r.ranges.Add(e.Offset)
	}
	if t.IsNew {
		t.Add(r)
	}
	if outcome == fold.Folded || outcome == fold.SyntheticEnd {
		t.bytes += r.weight.add(r.Fold(), len(e.Value))
		err = t.folded(r)
	}
	return r, outcome, err
}

// weighEvery, in bytes, keeps small folds from being measured often: a fold is measured again once its text has grown
// by its last length plus weighEvery.
const weighEvery = 16 << 10

// foldedMessage is the approximate memory of a message in a fold besides its text, in bytes.
const foldedMessage = 768

// Bytes returns the approximate memory of the folds of the thread's runs.
func (t *Thread) Bytes() int64 { return t.bytes }

// folded updates a run's metadata and lineage from its current fold, so that parents of later runs can be resolved.
func (t *Thread) folded(r *Run) error {
	f := r.folding.Fold
	if t.Resolution != nil {
		r.Decide(t.Resolution.Run, r.RawLost)
		r.folding.Placed = nil
		if r.last != nil {
			t.Resolution.Describe(r.last, r.folding.InputSHA256)
		}
		r.base = t.Resolution.Base
	}
	if !f.Ended() {
		r.Reactivate()
		return t.Show(&r.Metadata, r.folding)
	}
	messages := f.Messages()
	r.Metadata.Seal(lineage.Status(f.Summary().Status), r.folding.Synthetic)
	ended := record.Run{Base: r.Base}
	fold.Fill(&ended, f, r.folding.Tally, r.base)
	r.HistoryKey, r.MessageCount = t.HistoryKey(&ended, f), len(messages)
	r.Interrupts = fold.InterruptIDs(f.Summary().Interrupts)
	t.known.Add(r.End, messages)
	t.Seal(r)
	return t.Lineage.Add(r.Metadata.Run)
}

// Load implements fold.Directory. It does nothing, as all runs are in memory.
func (t *Thread) Load(string, int64) error { return nil }

// New implements fold.Directory.
func (t *Thread) New(id, clientRunID string, first *fold.Decoded) (*Run, *fold.Run, error) {
	r := &Run{Metadata: fold.NewMetadata(id, clientRunID, first.Offset)}
	r.folding = fold.NewRun(t.id, id, r.ClientRunID())
	return r, r.folding, nil
}

// Withdraw implements fold.Directory.
func (t *Thread) Withdraw(r *Run) bool { return r.Record == nil }

// Resume implements fold.Directory.
func (t *Thread) Resume(r *Run) (*fold.Run, error) {
	if r.folding != nil {
		return r.folding, nil
	}
	rec, err := t.source.Record(r.ID)
	if err != nil {
		return nil, err
	}
	if rec.Open == nil || rec.Raw.Next != r.Next {
		return nil, fmt.Errorf("following run %q: %w", rec.RunID, errNotOpen)
	}
	base := lineage.History{}
	if rec.Base != "" {
		if base, err = t.source.History(rec.Base); err != nil {
			return nil, err
		}
	}
	r.Pending, r.Metadata.Placed = rec.Open.Pending, rec.Open.Placed
	if r.folding, err = fold.Resume(rec, r.Metadata.Run, base); err != nil {
		return nil, fmt.Errorf("following run %q: %w", rec.RunID, err)
	}
	r.base = base
	if t.whole {
		last := *rec
		last.Messages, last.State, last.Layout, last.Open = nil, nil, nil, nil
		r.last, r.ranges = &last, record.NewRanges(rec.Raw.Ranges)
	}
	if f := r.folding.Fold; f != nil {
		if !t.whole {
			f.Keep(agui.NoFamilies)
		}
		t.bytes += r.weight.add(f, 0)
	}
	return r.folding, t.Show(&r.Metadata, r.folding)
}

var errNotOpen = errors.New("its record is not that of an open run")

// Current returns the record that an open run would get now, without its open fold; nil if the thread has not resumed the run. The thread
// must be whole.
func (t *Thread) Current(r *Run) (*record.Run, error) {
	if r.last == nil {
		return nil, nil
	}
	rec, f, base := *r.last, r.Fold(), r.base
	if f == nil { // as if its first event came now
		at, err := t.Resolve(&r.Metadata, r.folding, nil, r.folding.Input, r.Next)
		if err != nil {
			return nil, err
		}
		at.Describe(&rec, r.folding.InputSHA256)
		f, base = at.Fold, at.Base
	}
	r.folding.Fill(&rec, f, base)
	rec.Raw.Next, rec.Raw.NextSeq, rec.Raw.Ranges = r.Next, r.NextSeq, r.ranges.List()
	return &rec, nil
}

// Record implements fold.Directory. For a run that has ended since its record, it returns the beginning of the run as
// its next record will have it.
func (t *Thread) Record(r *Run) (*record.Run, error) {
	if r.folding == nil {
		return r.Record, nil
	}
	return &record.Run{InputSHA256: r.folding.InputSHA256, Started: r.folding.Fold.Summary().Started}, nil
}

// History implements fold.Directory and lineage.Known.
func (t *Thread) History(run string) (lineage.History, error) {
	if f := t.Get(run).Fold(); f != nil {
		return lineage.History{Messages: f.Messages(), State: f.State()}, nil
	}
	return t.source.History(run)
}

// Any implements lineage.Known.
func (t *Thread) Any(ids []string, offset int64) (bool, error) {
	if known, err := t.known.Any(ids, offset); known || err != nil {
		return known, err
	}
	runs, err := t.source.Holding(ids)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(runs, func(id string) bool {
		r := t.Get(id)
		return r != nil && r.Start < offset && !r.Open()
	}), nil
}
