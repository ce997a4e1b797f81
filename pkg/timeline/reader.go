package timeline

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// StartError is returned if the history that a run starts from cannot be rebuilt.
type StartError struct {
	// Reason is for the caller of the API.
	Reason string
	// Gone: raw events that are needed were deleted.
	Gone bool
}

func (e *StartError) Error() string { return e.Reason }

// maxUnsealed bounds the ancestors that are folded along with a run because they were open when their child started.
const maxUnsealed = 16

// Reader makes the Timeline of a run from the raw records of its thread. It can continue when there are more of them: an open run is read to the
// end of the log, and not only as far as its record.
type Reader struct {
	*Timeline
	loop     *fold.Loop
	recorded *fold.Recorded
	target   *folded
	runs     map[string]*folded // target, and ancestors that were open when their child started
	current  *folded            // the run of the last record
	// history returns the history at the end of a run, from its record.
	history func(run string) (lineage.History, error)
	// next is the offset below which all records were taken in.
	next int64
	// strangers are the offsets of the first events of runs without a record, by client run id. After such an event, the run of an event without
	// a run id is not known, and the reader is stopped.
	strangers map[string]int64
	stopped   bool
	// ended: the target's terminal event was folded, and the fold was let go of.
	ended bool
	// text is how many bytes the target's records have.
	text int64
}

// folded is a run that the reader folds.
type folded struct {
	*fold.Run
	rec *record.Run
	// needs is a parent that was open when the run started.
	needs *folded
	// failed is set if the run cannot be folded.
	failed *StartError
}

// NewReader returns the reader of one run's raw records. Records are those of its thread, which may lack contents; history returns the
// history at the end of a run of them. The timeline may hold limit bytes. Start is the first offset that the log still has.
func NewReader(records []*record.Run, run string, start, limit int64, history func(run string) (lineage.History, error)) (*Reader, error) {
	r := &Reader{Timeline: newTimeline(limit), runs: map[string]*folded{}, history: history, strangers: map[string]int64{}}
	r.loop = fold.NewLoop(r)
	byID := make(map[string]*record.Run, len(records))
	for _, rec := range records {
		byID[rec.RunID] = rec
	}
	rec := byID[run]
	if rec == nil {
		return nil, fmt.Errorf("stepping through run %q: it has no record", run)
	}
	r.Update(records)
	child := r.fold(rec, start)
	r.target, r.next = child, rec.Raw.First
	for n := 0; ; n++ {
		parent := byID[child.rec.ParentRunID]
		if parent == nil || !fold.StartsBeside(child.rec, parent) {
			break
		}
		if n == maxUnsealed {
			return nil, &StartError{Reason: fmt.Sprintf("more than %d of its ancestors were open when their children started", maxUnsealed)}
		}
		child.needs = r.fold(parent, start)
		r.next = min(r.next, parent.Raw.First)
		child = child.needs
	}
	for p := r.target; p != nil; p = p.needs {
		if p.failed != nil {
			return nil, p.failed
		}
	}
	return r, nil
}

// fold adds a run to those that the reader folds.
func (r *Reader) fold(rec *record.Run, start int64) *folded {
	p := &folded{Run: fold.NewRun(rec.ThreadID, rec.RunID, cmp.Or(rec.ClientRunID, rec.RunID)), rec: rec}
	if len(rec.Raw.Ranges) > 0 && rec.Raw.Ranges[0][0] < start {
		reason := "the raw events are gone: they are older than skein.events keeps them; the history is kept: ask for the history"
		if r.target != nil {
			reason = fmt.Sprintf("the raw events of its parent %q, which was open when the run started, are gone; the history is kept: ask for the history", rec.RunID)
		}
		p.failed = &StartError{Reason: reason, Gone: true}
	}
	r.runs[rec.RunID] = p
	return p
}

// Update replaces the records of the thread by newer ones.
func (r *Reader) Update(records []*record.Run) {
	r.recorded, r.stopped = fold.NewRecorded(records), false
	for _, rec := range records {
		if p := r.runs[rec.RunID]; p != nil {
			p.rec = rec
		}
		for id, at := range r.strangers {
			if rec.Raw.First == at {
				delete(r.strangers, id)
			}
		}
	}
}

// Done reports whether all records of the run were taken in and no more will come.
func (r *Reader) Done() bool {
	return r.ended || fold.Final(r.target.rec) && r.next >= r.target.rec.Raw.Next
}

// Next is the offset below which all records were taken in.
func (r *Reader) Next() int64 { return r.next }

// Ranges returns the offset ranges to take in next, rising and disjoint, given the end of the log. Call Taken after them.
func (r *Reader) Ranges(end int64) [][2]int64 {
	var all [][2]int64
	for p := r.target; p != nil; p = p.needs {
		until := r.until(end)
		for _, part := range p.rec.Raw.Ranges {
			all = append(all, [2]int64{max(part[0], r.next), min(part[1], until)})
		}
		if p.rec.Status == record.StatusRunning && !p.rec.InputOnly() {
			all = append(all, [2]int64{max(p.rec.Raw.Next, r.next), until})
		}
	}
	all = slices.DeleteFunc(all, func(part [2]int64) bool { return part[0] >= part[1] })
	slices.SortFunc(all, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	var out [][2]int64
	for _, part := range all {
		if n := len(out); n > 0 && part[0] <= out[n-1][1] {
			out[n-1][1] = max(out[n-1][1], part[1])
			continue
		}
		out = append(out, part)
	}
	return out
}

// until is the offset below which the run has records.
func (r *Reader) until(end int64) int64 {
	if rec := r.target.rec; rec.Status != record.StatusRunning || rec.InputOnly() {
		return min(end, rec.Raw.Next)
	}
	return end
}

// Taken records that Take was called for all records of Ranges(end).
func (r *Reader) Taken(end int64) {
	if !r.stopped {
		r.next = max(r.next, r.until(end))
	}
}

// Take takes in the next raw record of the thread.
func (r *Reader) Take(e record.Event) error {
	if r.stopped || e.Offset < r.next {
		return nil
	}
	taken, outcome, err := r.loop.Next(e)
	if err != nil {
		return fmt.Errorf("folding run %q at %s: %w", r.target.ID, e.Position(), err)
	}
	if r.stopped {
		return nil
	}
	r.next = e.Offset + 1
	if taken == nil || r.current != r.target {
		return nil
	}
	s := Step{Offset: e.Offset, Time: e.Time.UTC(), Kind: e.Headers.Kind, Seq: e.Headers.Seq, Outcome: outcome}
	if taken.Fold == nil && s.Kind == record.KindInput {
		if outcome == fold.Input {
			r.start, r.start.Value = s, bytes.Clone(e.Value)
		}
		return nil
	}
	if taken.Fold != nil && !r.begun {
		r.begun = true
		r.target.needs = nil
	}
	r.text += int64(len(e.Value))
	if err := r.add(s, bytes.Clone(e.Value), taken.Fold); err != nil {
		return err
	}
	if taken.Fold != nil && taken.Fold.Ended() { // the steps and marks tell all
		r.ended, taken.Fold, taken.Tally = true, nil, nil
	}
	return nil
}

// foldedMessage is about how much memory a message takes in a fold beside its text, and listed what of that Overhead does not count.
const foldedMessage, listed = 768, 256

// foldBytes is about how much memory a fold takes beside its text.
func foldBytes(run *compact.Run) int64 {
	return listed*int64(run.MessageCount()) + int64(run.Overhead())
}

// FoldBytes is about how much memory the fold of a run that goes on holds, beside Bytes.
func (r *Reader) FoldBytes() int64 {
	if r.ended || r.target.Fold == nil {
		return 0
	}
	return foldBytes(r.target.Fold) + 2*r.text
}

// Headers are those of the last record; the next record probably repeats them (record.ParseHeadersLike).
func (r *Reader) Headers() record.Headers { return r.loop.Decoded().Headers }

// Find implements fold.Runs.
func (r *Reader) Find(d *fold.Decoded) (*fold.Run, fold.Outcome, error) {
	span, found := r.recorded.Of(d)
	if r.strange(d, span, found) {
		return nil, "", nil
	}
	p := r.runs[span.RunID]
	switch {
	case !found || p == nil || d.Offset >= span.Next && span.Sealed:
	case d.Offset >= span.Next && len(r.strangers) > 0 && d.ClientRunID() == "":
		r.stopped = true
	case p != r.target && r.begun || p == r.target && r.ended || p.Fold != nil && p.Fold.Ended():
	case p.rec.RawLost && d.Offset < span.Next && !within(p.rec.Raw.Ranges, d.Offset): // passed over when it was folded
	default:
		r.current = p
		return p.Run, "", nil
	}
	return nil, "", nil
}

// strange notes the first event of a run that has no record.
func (r *Reader) strange(d *fold.Decoded, span fold.Span, found bool) bool {
	id := d.ClientRunID()
	if id == "" {
		return false
	}
	begins := d.Headers.Kind == record.KindInput
	if ev := d.Payload(); ev != nil {
		begins = ev.Type == agui.RunStarted
	}
	ended := span.Sealed && d.Offset >= span.Next
	if p := r.runs[span.RunID]; p != nil {
		ended = ended || p == r.target && r.ended || p.Fold != nil && p.Fold.Ended()
	}
	if found && (!begins || !ended) {
		return false
	}
	if _, known := r.strangers[id]; !known {
		r.strangers[id] = d.Offset
	}
	return true
}

func within(ranges [][2]int64, offset int64) bool {
	return slices.ContainsFunc(ranges, func(r [2]int64) bool { return r[0] <= offset && offset < r[1] })
}

// Begin implements fold.Runs: a run starts from its parent's record, or from the current fold of a parent that is still open.
func (r *Reader) Begin(_ *fold.Run, first *fold.Decoded, input *agui.RunAgentInput) (*compact.Run, error) {
	p := r.current
	from := fold.Origin{}
	var err error
	if p.rec.Base != "" {
		if from.Base, err = r.history(p.rec.Base); err != nil {
			return nil, err
		}
	}
	if from.Parent, err = r.parent(p, from.Base, first.Offset); err != nil {
		return nil, err
	}
	started := fold.StartRecorded(p.rec, &from, input)
	if p != r.target {
		return started, nil
	}
	started.Keep(agui.NoFamilies) // the steps have the events
	return started, r.begin(from.Parent, started)
}

// parent returns the history that a run continues: its parent's, as of an offset.
func (r *Reader) parent(p *folded, base lineage.History, at int64) (lineage.History, error) {
	id := p.rec.ParentRunID
	switch parent := p.needs; {
	case id == "" || p.rec.Base == id || fold.StartedAlone(p.rec):
		return base, nil
	case parent == nil || parent.rec.Raw.Next <= at && parent.rec.Status != record.StatusRunning:
		return r.history(id)
	case parent.Fold == nil:
		return lineage.History{}, &StartError{Reason: fmt.Sprintf("its parent %q had no event when the run started", id)}
	default:
		return fold.At(parent.Fold, lineage.History{}), nil
	}
}
