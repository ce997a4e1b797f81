package fold

import (
	"cmp"
	"fmt"

	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// ContentOf returns what a record adds to the history of its base.
func ContentOf(rec *record.Run) lineage.Content {
	return lineage.Content{RunID: rec.RunID, Base: rec.Base, Messages: rec.Messages, Layout: rec.Layout, State: rec.State}
}

// Resume returns a run in the state of its record. The run must not be sealed. The argument at is the run's lineage,
// and base is the history at the end of its base.
func Resume(rec *record.Run, at lineage.Run, base lineage.History) (*Run, error) {
	if rec.Open == nil {
		return nil, fmt.Errorf("resuming run %q: its record of offset %d is not open", rec.RunID, rec.Raw.Next)
	}
	r := NewRun(rec.ThreadID, rec.RunID, cmp.Or(rec.ClientRunID, rec.RunID))
	r.Seq = Sequence{Next: rec.Raw.NextSeq, Missing: rec.Open.MissingSeqs}
	if rec.Raw.Next > rec.Raw.First { // else they are of events that are read again
		r.Producer.Agent, r.Producer.Labels, r.Producer.Traceparent = rec.Agent, rec.Labels, rec.Traceparent
	}
	r.FirstMalformed = rec.FirstMalformed
	if err := r.Tally.restore(rec); err != nil {
		return nil, err
	}
	var err error
	if rec.Open.Pending {
		err = r.resumePending(rec, at, base)
	} else {
		err = r.resumeFold(rec, base)
	}
	if err != nil {
		return nil, fmt.Errorf("resuming run %q: %w", rec.RunID, err)
	}
	return r, nil
}

func (r *Run) resumeFold(rec *record.Run, base lineage.History) error {
	at, err := lineage.RestoreFrom(base.Unshare(), ContentOf(rec))
	if err != nil {
		return err
	}
	if r.Fold, err = compact.Resume(at.Messages, at.State, rec.Open.Fold); err != nil {
		return err
	}
	r.Fold.Keep(rec.Kept) // even if the setting has changed since
	r.Early, r.InputSHA256 = nil, rec.InputSHA256
	return nil
}

func (r *Run) resumePending(rec *record.Run, at lineage.Run, base lineage.History) error {
	if rec.Stats.Anomalies != nil {
		r.Early = rec.Stats.Anomalies
	}
	in, err := PendingInput(rec)
	if err != nil {
		return err
	}
	if in != nil {
		r.Input, r.InputSHA256 = in, rec.InputSHA256
	}
	if !rec.Open.Placed {
		return nil
	}
	at.End, at.Status, at.Sealed, at.Synthetic = -1, lineage.StatusRunning, false, false
	r.Placed = &Resolution{Placement: lineage.Placement{Run: at}, Parent: base, Base: base}
	if rec.Base == "" {
		r.Placed.Parent, err = lineage.Restore(ContentOf(rec))
	}
	return err
}
