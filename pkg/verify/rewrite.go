package verify

import (
	"errors"
	"fmt"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Rewriter folds all runs of one thread again, in the order of their raw records, and returns the records that differ under the current
// rules. Unlike a Thread it follows a change along the thread: a run starts from what its parent's raw events give now.
// Lineage is taken from the records, as it is final.
type Rewriter struct {
	loop     *fold.Loop
	recorded *fold.Recorded
	runs     []*rewriteRun // by start
	byID     map[string]*rewriteRun
	current  *rewriteRun // the run of the last record
}

// rewriteRun is one run of a Rewriter.
type rewriteRun struct {
	run
	// excluded is why the record is not made again; runs based on it then start from its recorded history.
	excluded Outcome
	reason   string
	made     *record.Run
	// at is the history at the end of the new record, key its key; recorded is that of the old record. Runs that only append to one
	// another share it, so a thread is in memory once, not once for each run.
	at       lineage.History
	key      lineage.Key
	recorded *lineage.History
}

// Outcome is the outcome of folding a run again.
type Outcome string

// The outcomes.
const (
	// Same: the raw events make the same record.
	Same Outcome = "same"
	// Changes: they make another record.
	Changes Outcome = "changes"
	// Gone: raw events that it needs are gone, so the record stays as it is.
	Gone Outcome = "gone"
	// Open: the run is open, or expired with only an input, so its record will change anyway.
	Open Outcome = "open"
)

// Result is the result of folding one run again.
type Result struct {
	Tenant   string `json:"tenant"`
	ThreadID string `json:"threadId"`
	RunID    string `json:"runId"`
	// Position is that of the run's first record in skein.events.
	Position record.Position `json:"position"`
	// FoldVersion is the version of the rules that made the record.
	FoldVersion int     `json:"foldVersion"`
	Outcome     Outcome `json:"outcome"`
	// Why says what is gone.
	Why string `json:"why,omitempty"`
	// Differences are the members that change, each with the place of its first change.
	Differences []Difference `json:"differences"`
}

// Rewritten is a record that replaces the current one.
type Rewritten struct {
	Record *record.Run
	// Was is the history at the run's end by the old records, Is by the new ones.
	Was, Is lineage.History
}

// ErrUnchanged means that all records of a thread stay as they are, as one that would have to be replaced cannot be.
var ErrUnchanged = errors.New("the thread stays as it is")

// NewRewriter returns a Rewriter over the latest records of all runs of a thread, which it sorts by start. Start is the first offset that
// skein.events still has.
func NewRewriter(records []*record.Run, start int64) *Rewriter {
	slices.SortFunc(records, compareStart)
	w := &Rewriter{recorded: fold.NewRecorded(records), byID: make(map[string]*rewriteRun, len(records))}
	w.loop = fold.NewLoop(w)
	for _, rec := range records {
		r := &rewriteRun{run: newRun(rec)}
		switch {
		case rec.RawLost:
			r.exclude("events were gone before they were folded")
		case rec.Raw.First < rec.Raw.Next && (len(rec.Raw.Ranges) == 0 || rec.Raw.Ranges[0][0] < start):
			r.exclude("raw events are older than skein.events keeps them")
		case rec.Status == record.StatusRunning || rec.InputOnly():
			r.excluded = Open // folded all the same: others may be based on it
		}
		w.runs, w.byID[rec.RunID] = append(w.runs, r), r
	}
	return w
}

func (r *rewriteRun) exclude(reason string) { r.excluded, r.reason = Gone, reason }

// errExcluded means that a run cannot be folded again, for its reason.
var errExcluded = errors.New("the run is excluded")

// Take takes the next raw record of the thread's key. Records that no run needs may be left out.
func (w *Rewriter) Take(e record.Event) error {
	taken, _, err := w.loop.Next(e)
	r := w.current
	switch {
	case errors.Is(err, errExcluded):
		return nil
	case err != nil:
		return fmt.Errorf("folding run %q again at %s: %w", r.ID, e.Position(), err)
	case taken != nil && r.excluded != Open && r.next == r.rec.Raw.Next:
		return r.finish()
	}
	return nil
}

// Find implements fold.Runs.
func (w *Rewriter) Find(d *fold.Decoded) (*fold.Run, fold.Outcome, error) {
	span, ok := w.recorded.Of(d)
	if !ok {
		return nil, "", nil
	}
	r := w.byID[span.RunID]
	if r.excluded == Gone || r.excluded != Open && d.Offset >= span.Next {
		return nil, "", nil
	}
	if r.first < 0 {
		r.first = d.Offset
	}
	r.next, w.current = d.Offset+1, r
	return r.Run, "", nil
}

// Begin implements fold.Runs: the run starts from its parent's current history.
func (w *Rewriter) Begin(_ *fold.Run, _ *fold.Decoded, input *agui.RunAgentInput) (*compact.Run, error) {
	r := w.current
	if id := r.rec.ParentRunID; id != "" && !fold.StartedAlone(r.rec) {
		p := w.byID[id]
		switch {
		case p == nil:
			r.exclude(fmt.Sprintf("its parent %q has no record", id))
			return nil, errExcluded
		case (p.excluded != Open || p.rec.Closed) && p.rec.Raw.Next < r.next: // closed with only an input, it is as its record says
			var err error
			if r.from.Parent, err = w.history(p); err != nil {
				return nil, err
			}
		case p.excluded == Gone || p.Fold == nil:
			r.exclude(fmt.Sprintf("raw events of its parent %q, which was going on when the run started, are gone", id))
			return nil, errExcluded
		default:
			r.from.Parent = lineage.History{Messages: p.Fold.Messages(), State: p.Fold.State()}
		}
	}
	if r.rec.Base != "" {
		b := w.byID[r.rec.Base]
		if b == nil {
			r.exclude(fmt.Sprintf("its base %q has no record", r.rec.Base))
			return nil, errExcluded
		}
		var err error
		if r.from.Base, err = w.history(b); err != nil {
			return nil, err
		}
		if b.replaces() {
			r.from.BaseKey = &b.key
		}
	}
	return fold.StartRecorded(r.rec, &r.from, input), nil
}

// finish makes the run's record.
func (r *rewriteRun) finish() error {
	r.made, _ = r.make(r.rec)
	if r.Fold != nil {
		at, err := lineage.RestoreFrom(r.from.Base, contentOf(r.made))
		if err == nil {
			err = r.key.UnmarshalText([]byte(r.made.HistoryKey))
		}
		if err != nil {
			return fmt.Errorf("folding run %q again: %w", r.ID, err)
		}
		r.at = at.Share()
	}
	if was := r.rec.Open; was != nil && r.Fold != nil { // abandoned: a real event may yet come
		checkpoint, err := r.Fold.Checkpoint()
		if err != nil {
			return err
		}
		hash, err := r.Tally.HashState()
		if err != nil {
			return err
		}
		r.made.Open = &record.Open{Fold: checkpoint, Hash: hash, MissingSeqs: r.Seq.Missing, LastAt: was.LastAt}
	}
	r.free()
	return nil
}

// replaces reports whether runs based on this one start from its new record. From a record that was cut, the compactor also starts
// from the recorded history.
func (r *rewriteRun) replaces() bool { return r.made != nil && r.rec.Whole() }

// history is what runs based on a run start from: its new history or, if none was made, the recorded one.
func (w *Rewriter) history(r *rewriteRun) (lineage.History, error) {
	if r.replaces() {
		return r.at, nil
	}
	return w.recordedHistory(r)
}

// recordedHistory is the history at a run's end by its record.
func (w *Rewriter) recordedHistory(r *rewriteRun) (lineage.History, error) {
	var chain []*rewriteRun
	for at := r; ; {
		chain = append(chain, at)
		if at.recorded != nil || at.rec.Base == "" {
			break
		}
		base := w.byID[at.rec.Base]
		if base == nil || len(chain) > len(w.runs) {
			return lineage.History{}, fmt.Errorf("restoring run %q: its base %q has no record", at.ID, at.rec.Base)
		}
		at = base
	}
	at := lineage.History{}.Share()
	for _, r := range slices.Backward(chain) {
		if r.recorded == nil {
			h, err := lineage.RestoreFrom(at, contentOf(r.rec))
			if err != nil {
				return lineage.History{}, fmt.Errorf("restoring run %q: %w", r.ID, err)
			}
			h = h.Share()
			r.recorded = &h
		}
		at = *r.recorded
	}
	return at, nil
}

// Results returns the results of the runs, by start, once all raw records were taken.
func (w *Rewriter) Results() ([]Result, error) {
	out := make([]Result, len(w.runs))
	for i, r := range w.runs {
		var err error
		if out[i], err = r.result(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (r *rewriteRun) result() (Result, error) {
	out := Result{
		Tenant: r.rec.Tenant, ThreadID: r.rec.ThreadID, RunID: r.ID,
		Position:    record.Position{Partition: r.rec.Raw.Partition, Offset: r.rec.Raw.First},
		FoldVersion: r.rec.FoldVersion, Outcome: r.excluded, Why: r.reason, Differences: []Difference{},
	}
	switch {
	case r.excluded == Gone && r.rec.Status == record.StatusRunning:
		out.Outcome, out.Why = Open, ""
		return out, nil
	case r.excluded != "":
		return out, nil
	}
	if r.made == nil { // its last raw records are not there
		if err := r.finish(); err != nil {
			return Result{}, err
		}
	}
	all, err := Differences(r.rec, r.made)
	if err != nil {
		return Result{}, err
	}
	for _, d := range all {
		if compared(r.rec, false, d.Member) {
			out.Differences = append(out.Differences, d)
		}
	}
	out.Outcome = Same
	if len(out.Differences) > 0 {
		out.Outcome = Changes
	}
	return out, nil
}

// Rewrite returns the records to write, by start, once all raw records were taken: those of runs whose fold differs now, and
// of runs based on these, which are then encoded relative to another history. Lineage, positions, hashes and the families of
// kept events stay. Rewriting the results with the same raw records gives none.
//
// A run that cannot be folded again (raw events are gone, contents were cut) keeps its record; if it is based on one that changes,
// the error is ErrUnchanged, as its history would be inconsistent. So it is if a run is open, or would have ended otherwise.
func (w *Rewriter) Rewrite() ([]Rewritten, error) {
	var all []Rewritten
	refolds := map[string]int{} // of the runs in all
	for _, r := range w.runs {
		if r.rec.Status == record.StatusRunning {
			return nil, fmt.Errorf("%w: run %q is open: try again once it has ended", ErrUnchanged, r.ID)
		}
		of, based := refolds[r.rec.Base]
		out, err := r.result()
		if err != nil {
			return nil, err
		}
		switch reason := r.reason; {
		case out.Outcome != Changes && !based:
			continue
		case !r.rec.Whole():
			reason = "its contents were cut"
			fallthrough
		case r.excluded != "":
			if based {
				return nil, fmt.Errorf("%w: run %q is based on one that changes, and cannot be folded again: %s", ErrUnchanged, r.ID, reason)
			}
			continue
		}
		if i := slices.IndexFunc(out.Differences, func(d Difference) bool { return isProof(d.Member) }); i >= 0 {
			return nil, fmt.Errorf("%w: the raw events of run %q are not those of its record, which differs in %s", ErrUnchanged, r.ID, out.Differences[i].Member)
		}
		if was, is := r.rec.Status.Sealed(), r.made.Status.Sealed(); was != is {
			// What came behind was taken for the run's, or for another's, by where it ended.
			ended := "would not have ended"
			if is {
				ended = "would have ended"
			}
			return nil, fmt.Errorf("%w: run %q %s by the rules of this version", ErrUnchanged, r.ID, ended)
		}
		was, err := w.recordedHistory(r)
		if err != nil {
			return nil, err
		}
		r.made.FoldVersion, r.made.Refolds = compact.Version, r.rec.Refolds+1
		if based {
			r.made.BaseRefolds = of
		}
		refolds[r.ID] = r.made.Refolds
		all = append(all, Rewritten{Record: r.made, Was: was, Is: r.at})
	}
	return all, nil
}
