package timeline

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Reader makes the Timeline of a run from the raw records of its thread. It can continue when more records arrive: it
// reads an open run to the end of the log, not only to the end of the run's record.
type Reader struct {
	*Timeline
	loop   *fold.Loop
	refold *fold.Refold
	// target is the run. Ancestors that were open when their child started are folded along with it.
	target *fold.RefoldedRun
	// history returns the history at the end of a run, taken from the run's record.
	history func(run string) (lineage.History, error)
	// next is the offset below which all records were processed.
	next int64
	// strangers maps client run ids of runs without a record to the offset of their first event. After such an event, it
	// is unknown to which run an event without a run id belongs, so the reader is stopped.
	strangers map[string]int64
	stopped   bool
	// ended: the target's terminal event was folded, and the target's fold was released.
	ended bool
	// text is the total length of the target's records, in bytes.
	text int64
}

// NewReader returns a reader of the raw records of one run. records are those of the run's thread and may lack contents.
// history returns the history at the end of a run among them. limit is how many bytes the timeline may hold. start is the
// first offset that the log still has. The error is a *fold.StartError if raw events that the reader needs are gone.
func NewReader(records []*record.Run, run string, start, limit int64, history func(run string) (lineage.History, error)) (*Reader, error) {
	r := &Reader{Timeline: newTimeline(limit), history: history, strangers: map[string]int64{}}
	at := slices.IndexFunc(records, func(rec *record.Run) bool { return rec.RunID == run })
	if at < 0 {
		return nil, fmt.Errorf("stepping through run %q: it has no record", run)
	}
	const gone = "the history is kept: ask for the history"
	rec := records[at]
	if isGone(rec, start) {
		return nil, &fold.StartError{Reason: "the raw events are gone: they are older than skein.events keeps them; " + gone, Gone: true}
	}
	r.refold = fold.NewRefold(records, r)
	r.loop = fold.NewLoop(r.refold)
	r.target, r.next = r.refold.Fold(rec), rec.Raw.First
	return r, r.refold.FoldParents(r.target, func(_ *fold.RefoldedRun, parent *record.Run) (*fold.RefoldedRun, error) {
		if isGone(parent, start) {
			return nil, &fold.StartError{Reason: fmt.Sprintf("the raw events of its parent %q, which was open when the run started, are gone; %s", parent.RunID, gone), Gone: true}
		}
		r.next = min(r.next, parent.Raw.First)
		return r.refold.Fold(parent), nil
	})
}

func isGone(rec *record.Run, start int64) bool {
	return len(rec.Raw.Ranges) > 0 && rec.Raw.Ranges[0][0] < start
}

// Update replaces the records of the thread with newer ones.
func (r *Reader) Update(records []*record.Run) {
	r.refold.Update(records)
	r.stopped = false
	for _, rec := range records {
		for id, at := range r.strangers {
			if rec.Raw.First == at {
				delete(r.strangers, id)
			}
		}
	}
}

// Done reports whether all records of the run were processed and no more can come.
func (r *Reader) Done() bool {
	return r.ended || fold.Final(r.target.Rec) && r.next >= r.target.Rec.Raw.Next
}

// Next returns the offset below which all records were processed.
func (r *Reader) Next() int64 { return r.next }

// Ranges returns the offset ranges to read next, ascending and disjoint. end is the end of the log. Call Take for
// each record in the ranges, then Taken.
func (r *Reader) Ranges(end int64) [][2]int64 {
	var all [][2]int64
	for p := r.target; p != nil; p = p.Needs {
		until := r.until(end)
		for _, part := range p.Rec.Raw.Ranges {
			all = append(all, [2]int64{max(part[0], r.next), min(part[1], until)})
		}
		if p.Rec.Status == record.StatusRunning && !p.Rec.InputOnly() {
			all = append(all, [2]int64{max(p.Rec.Raw.Next, r.next), until})
		}
	}
	return fold.MergeRanges(all)
}

// until returns the exclusive end of the offsets at which the run's records can be. end is the end of the log.
func (r *Reader) until(end int64) int64 {
	if rec := r.target.Rec; rec.Status != record.StatusRunning || rec.InputOnly() {
		return min(end, rec.Raw.Next)
	}
	return end
}

// Taken marks all records of Ranges(end) as processed. Call it after Take was called for each of them.
func (r *Reader) Taken(end int64) {
	if !r.stopped {
		r.next = max(r.next, r.until(end))
	}
}

// Take processes the next raw record of the thread.
func (r *Reader) Take(e record.Event) error {
	if r.stopped || e.Offset < r.next {
		return nil
	}
	taken, outcome, err := r.loop.Next(&e)
	if err != nil {
		return fmt.Errorf("folding run %q at %s: %w", r.target.ID, e.Position(), err)
	}
	if r.stopped {
		return nil
	}
	r.next = e.Offset + 1
	if taken == nil || r.refold.Current != r.target {
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
		r.target.Needs = nil
	}
	r.text += int64(len(e.Value))
	if err := r.add(s, bytes.Clone(e.Value), taken.Fold); err != nil {
		return err
	}
	if taken.Fold != nil && taken.Fold.Ended() { // the steps and marks suffice from here on
		r.ended, taken.Fold, taken.Tally = true, nil, nil
	}
	return nil
}

// foldedMessage is the approximate memory, in bytes, of a message in a fold besides its text. listed is the part of
// foldedMessage that compact.Run.Overhead does not count.
const foldedMessage, listed = 768, 256

// foldBytes returns the approximate memory of a fold besides its text.
func foldBytes(run *compact.Run) int64 {
	return listed*int64(run.MessageCount()) + int64(run.Overhead())
}

// FoldBytes returns the approximate memory of the fold of an open run, which Bytes does not include.
func (r *Reader) FoldBytes() int64 {
	if r.ended || r.target.Fold == nil {
		return 0
	}
	return foldBytes(r.target.Fold) + 2*r.text
}

// Takes implements fold.RefoldOwner.
func (r *Reader) Takes(m *fold.Metadata, d *fold.Decoded) (*fold.RefoldedRun, error) {
	if r.strange(d, m) || m == nil {
		return nil, nil
	}
	p := r.refold.Folded(m.ID)
	switch {
	case p == nil || d.Offset >= m.Next && m.Sealed:
	case d.Offset >= m.Next && len(r.strangers) > 0 && d.ClientRunID() == "":
		r.stopped = true
	case p != r.target && r.begun || r.hasEnded(p):
	default:
		return p, nil
	}
	return nil, nil
}

// hasEnded reports whether a run's terminal event was folded.
func (r *Reader) hasEnded(p *fold.RefoldedRun) bool {
	return p == r.target && r.ended || p.Fold != nil && p.Fold.Ended()
}

// strange reports whether a record belongs to a run without a run record, and notes the first event of that run.
func (r *Reader) strange(d *fold.Decoded, m *fold.Metadata) bool {
	id := d.ClientRunID()
	if id == "" {
		return false
	}
	begins := d.Headers.Kind == record.KindInput
	if ev := d.Payload(); ev != nil {
		begins = ev.Type == agui.RunStarted
	}
	if m != nil {
		p := r.refold.Folded(m.ID)
		if ended := m.Sealed && d.Offset >= m.Next || p != nil && r.hasEnded(p); !begins || !ended {
			return false
		}
	}
	if _, known := r.strangers[id]; !known {
		r.strangers[id] = d.Offset
	}
	return true
}

// History implements fold.RefoldOwner.
func (r *Reader) History(run string) (lineage.History, *lineage.HistoryKey, error) {
	h, err := r.history(run)
	return h, nil, err
}

// Starts implements fold.RefoldOwner.
func (r *Reader) Starts(p *fold.RefoldedRun, _ *fold.Decoded, _ *agui.RunAgentInput, started *compact.Run) error {
	if p != r.target {
		return nil
	}
	started.Keep(agui.NoFamilies) // the steps already hold the events
	return r.begin(p.From.Parent, started)
}
