package partition

import (
	"fmt"

	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// build makes the run's record as of now, and returns it with the history of its base. It also updates the history key and the
// trace context in the run's metadata. If the record of an unsealed run is over the limit, it has no Open, so no fold can resume from it.
func (r *run) build() (*record.Run, lineage.History, error) {
	p := r.thread.p
	rec, folded, err := r.describe()
	if err != nil || folded.Ended() {
		return rec, r.origin.base, err
	}
	switch {
	case r.ending != nil:
		r.markExpired(rec, r.ending)
	case r.meta.IsExpired():
		r.markExpired(rec, expiryEvent(p.cfg.IdleLimit))
	}
	rec.SinceSnapshot = r.meta.SinceSnapshot
	if record.LeastBytes(rec) > p.cfg.RecordLimit {
		return rec, r.origin.base, nil
	}
	err = r.buildOpen(rec, folded)
	return rec, r.origin.base, err
}

// describe makes the run's record without the members that the end of a run adds and those from which a fold resumes.
func (r *run) describe() (*record.Run, *compact.Run, error) {
	p := r.thread.p
	folded, base := r.Fold, r.origin.base
	rec := record.Run{
		Tenant: r.thread.tenant, ThreadID: r.thread.id, RunID: r.meta.ID, ClientRunID: r.meta.ClientID,
		FoldVersion: r.foldVersion, Kept: r.kept, RawLost: r.rawLost, Cut: r.cutAt,
	}
	if folded != nil {
		rec.Lineage, rec.Base, rec.InputSHA256 = fold.RecordLineage(r.meta.Run), r.meta.Base, r.InputSHA256
		in := r.origin
		rec.Input, rec.InputMessages, rec.InputLayout, rec.InputForm = in.input, in.messages, in.layout, in.form
		rec.Rewrote, rec.Resumes = in.rewrote, in.resumes
	} else { // pending: with its final resolution, or a preliminary one as if the first event came now
		at, err := r.thread.Resolve(&r.meta.Metadata, r.Run, nil, r.Input, p.next)
		if err != nil {
			return nil, nil, err
		}
		at.Describe(&rec, r.InputSHA256)
		folded = at.Fold
		if r.Placed != nil { // what it starts from, and its input as received
			folded, base, rec.Rewrote, rec.Resumes = at.Parent.Fold(), at.Base, nil, nil
		} else { // encoded relative to no base, so that the final resolution has the whole input
			rec.Base = ""
		}
		if r.Input != nil {
			rec.InputMessages, rec.InputLayout = r.Input.Messages, nil
		}
	}
	rec.Raw = record.Raw{Partition: p.id, First: r.meta.Start, Next: r.meta.Next, NextSeq: r.Seq.Next, Ranges: r.ranges.List()}
	r.Fill(&rec, folded, base)
	key := r.thread.HistoryKey(&rec, folded)
	rec.HistoryKey = key.String()
	r.meta.HistoryKey, r.meta.MessageCount, r.meta.Traceparent = key, rec.MessageCount, rec.Traceparent

	if rec.Status.Sealed() && !folded.Ended() {
		return nil, nil, fmt.Errorf("building record: the fold says %q and has not ended", rec.Status)
	}
	return &rec, folded, nil
}

// buildOpen adds what a fold needs to resume from the record.
func (r *run) buildOpen(rec *record.Run, folded *compact.Run) error {
	checkpoint, err := folded.Checkpoint()
	if err != nil {
		return fmt.Errorf("building record: %w", err)
	}
	hash, err := r.Tally.HashState()
	if err != nil {
		return err
	}
	rec.Open = &record.Open{
		Fold: checkpoint, Hash: hash, MissingSeqs: r.Seq.Missing,
		LastAt: r.meta.LastAt, Pending: r.meta.Pending, Placed: r.meta.Placed,
	}
	return nil
}
