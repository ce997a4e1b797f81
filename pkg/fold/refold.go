package fold

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// TableOf returns a table of the runs with these records. A run is sealed if its record is Final.
func TableOf(records []*record.Run) *Table[*Metadata] {
	var t Table[*Metadata]
	for _, r := range slices.SortedFunc(slices.Values(records), func(a, b *record.Run) int { return cmp.Compare(a.Raw.First, b.Raw.First) }) {
		t.Add(&Metadata{Run: LineageOf(r), Next: r.Raw.Next, NextSeq: r.Raw.NextSeq})
	}
	return &t
}

// Refold implements Runs for recorded runs that are folded again. Their records determine which run a raw record
// belongs to and what a run starts from. A parent that was open when its child started is folded along, because no
// record has its history at that point.
type Refold struct {
	*Table[*Metadata]
	// Current is the run of the last record; nil if that run is not folded.
	Current *RefoldedRun
	runs    map[string]*RefoldedRun
	records map[string]*record.Run
	owner   RefoldOwner
}

// RefoldedRun is a run that is folded again.
type RefoldedRun struct {
	*Run
	// Rec is the run's record; its contents may be missing.
	Rec  *record.Run
	From Origin
	// Needs is the parent, if it was open when the run started; nil after the run has begun.
	Needs *RefoldedRun
	// Failed is why the run cannot be folded; "" if it can. Gone means that raw events of the run were deleted.
	Failed string
	Gone   bool
	// Signed means that ingest signed a record of the run (record.HeaderMAC).
	Signed bool
	// Late means that the run has a raw record after the end in its run record, so that record was not final.
	Late bool
}

// RefoldOwner chooses the runs that a Refold folds and provides histories.
type RefoldOwner interface {
	// Takes returns the run that folds a record, or nil. The argument m is the run that the record belongs to, or nil.
	Takes(m *Metadata, d *Decoded) (*RefoldedRun, error)
	// History returns the history at the end of a run and its key, or a nil key if it is unknown.
	History(run string) (lineage.History, *lineage.HistoryKey, error)
	// Starts is called at what may be the first event of a run. started is the fold before this event.
	Starts(r *RefoldedRun, first *Decoded, input *agui.RunAgentInput, started *compact.Run) error
}

// StartError means that a run cannot be folded again.
type StartError struct {
	Reason string
	// Gone means that raw events that the run needs were deleted.
	Gone bool
}

func (e *StartError) Error() string { return e.Reason }

// NewRefold returns a Refold of a thread from the records of all its runs. Call Fold for each run to fold.
func NewRefold(records []*record.Run, owner RefoldOwner) *Refold {
	f := &Refold{runs: map[string]*RefoldedRun{}, owner: owner}
	f.Update(records)
	return f
}

// Update replaces the records with newer ones.
func (f *Refold) Update(records []*record.Run) {
	f.Table, f.records = TableOf(records), make(map[string]*record.Run, len(records))
	for _, rec := range records {
		f.records[rec.RunID] = rec
		if r := f.runs[rec.RunID]; r != nil {
			r.Rec = rec
		}
	}
}

// Fold adds a run to those that are folded.
func (f *Refold) Fold(rec *record.Run) *RefoldedRun {
	r := &RefoldedRun{Run: NewRun(rec.ThreadID, rec.RunID, cmp.Or(rec.ClientRunID, rec.RunID)), Rec: rec}
	f.runs[rec.RunID] = r
	return r
}

// Folded returns the run with this id if it is folded, else nil.
func (f *Refold) Folded(run string) *RefoldedRun { return f.runs[run] }

// maxUnsealed limits how many ancestors are folded, too, because they were open when their children started.
const maxUnsealed = 16

// FoldParents calls add for each ancestor that was open when its child started. The function add must call Fold for it.
func (f *Refold) FoldParents(r *RefoldedRun, add func(child *RefoldedRun, parent *record.Run) (*RefoldedRun, error)) (err error) {
	for n := 0; ; n++ {
		parent := f.records[r.Rec.ParentRunID]
		if parent == nil || r.Needs != nil || !StartsBeside(r.Rec, parent) {
			return nil
		}
		if n == maxUnsealed {
			return &StartError{Reason: fmt.Sprintf("more than %d of its ancestors were open when their children started", maxUnsealed)}
		}
		if r.Needs, err = add(r, parent); err != nil {
			return err
		}
		r = r.Needs
	}
}

// Find implements Runs.
func (f *Refold) Find(d *Decoded) (*Run, Outcome, error) {
	m := f.Of(d)
	f.Current = nil
	switch {
	case m == nil || d.Offset >= m.Next:
		if d.Signature == record.SignatureWrong { // the compactor refuses it
			return nil, "", nil
		}
	case f.runs[m.ID] != nil && f.runs[m.ID].leavesOut(d):
		return nil, "", nil
	}
	r, err := f.owner.Takes(m, d)
	if r == nil || err != nil {
		return nil, "", err
	}
	f.Current = r
	return r.Run, "", nil
}

// leavesOut reports whether the run's record does not include a record below its end: events were lost, or the compactor has refused what
// ingest had not signed. If ingest signed the run's records before, others outside of the ranges count as refused, except those that are
// known to be by ingest.
func (r *RefoldedRun) leavesOut(d *Decoded) bool {
	if !r.Rec.Raw.Has(d.Offset) {
		return r.Rec.RawLost || r.Signed && d.Signature != record.SignatureRight
	}
	return joinedOver(&r.Rec.Raw, d, &r.Signed)
}

// joinedOver reports whether a record in a run's ranges was refused. A run record that has MaxRanges joins ranges, so what ingest has not
// signed may lie inside; it counts as refused if ingest signed the run's records before. signed says so, and is kept up to date.
func joinedOver(raw *record.Raw, d *Decoded, signed *bool) bool {
	unsigned := d.Signature == record.SignatureNone || d.Signature == record.SignatureWrong
	if *signed && unsigned {
		return len(raw.Ranges) == record.MaxRanges
	}
	*signed = *signed || !unsigned
	return false
}

// Begin implements Runs.
func (f *Refold) Begin(_ *Run, first *Decoded, input *agui.RunAgentInput) (_ *compact.Run, err error) {
	r := f.Current
	if r.Rec.Base != "" {
		if r.From.Base, r.From.BaseKey, err = f.owner.History(r.Rec.Base); err != nil {
			return nil, err
		}
	}
	if r.From.Parent, err = f.parent(r, first.Offset); err != nil {
		return nil, err
	}
	started := Restart(r.Rec, &r.From, input)
	return started, f.owner.Starts(r, first, input, started)
}

// parent returns the history that a run starts from: its parent's history at offset `at`.
func (f *Refold) parent(r *RefoldedRun, at int64) (lineage.History, error) {
	id := r.Rec.ParentRunID
	if id == "" || r.Rec.Base == id || StartedAlone(r.Rec) {
		return r.From.Base, nil
	}
	rec, parent := f.records[id], f.runs[id]
	var reason string
	switch {
	case rec == nil:
		reason = fmt.Sprintf("its parent %q has no record, or none yet", id)
	case parent != nil && parent.Late:
		reason = fmt.Sprintf("its parent %q had gone on when the run started, and its record does not say so yet", id)
	case rec.Raw.Next <= at && rec.Status != record.StatusRunning:
		h, _, err := f.owner.History(id)
		return h, err
	case parent != nil && parent.Gone:
		reason = fmt.Sprintf("the raw events of its parent %q, which was going on when the run started, are gone", id)
	case parent == nil || parent.Failed != "":
		reason = fmt.Sprintf("its parent %q, which was going on when the run started, cannot be folded again", id)
	case parent.Run.Fold == nil:
		reason = fmt.Sprintf("its parent %q had no event when the run started", id)
	default:
		return At(parent.Run.Fold, lineage.History{}), nil
	}
	return lineage.History{}, &StartError{Reason: reason}
}

// MergeRanges sorts ranges of offsets and joins those that touch or overlap. It modifies its argument.
func MergeRanges(ranges [][2]int64) (out [][2]int64) {
	ranges = slices.DeleteFunc(ranges, func(r [2]int64) bool { return r[0] >= r[1] })
	slices.SortFunc(ranges, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	for _, r := range ranges {
		if n := len(out); n > 0 && r[0] <= out[n-1][1] {
			out[n-1][1] = max(out[n-1][1], r[1])
			continue
		}
		out = append(out, r)
	}
	return out
}
