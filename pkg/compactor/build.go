package compactor

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/refold"
)

// build makes the record of a run as it stands and returns it with the history of its base; what
// the run's head says of the history is brought up to date.
func (p *partition) build(r *run) (*record.Run, lineage.History, error) {
	fold, rec, early := r.fold, r.rec, r.early
	if fold == nil { // pending: placed for now, as if the first event came now
		pl, err := p.place(r, nil, p.next)
		if err != nil {
			return nil, lineage.History{}, err
		}
		shown := run{rec: r.rec}
		shown.setPlacement(pl)
		// Told against no base, so that the input stays whole for the placement that counts.
		shown.rec.Base, shown.rec.BaseRefolds, shown.rec.InputMessages, shown.rec.InputLayout = "", 0, r.input.Messages, nil
		fold, rec = pl.fold, shown.rec
	}
	base := r.base
	refold.Fill(&rec, fold, r.tally, base)
	key := p.historyKey(r.thread, &rec, fold)
	rec.HistoryKey = key.String()
	r.head.HistoryKey, r.head.MessageCount = key, rec.MessageCount

	if rec.Status.Sealed() && !fold.Ended() {
		return nil, lineage.History{}, fmt.Errorf("building record: the fold says %q and has not ended", rec.Status)
	}
	if r.fold == nil {
		rec.Stats.Anomalies = refold.NotEmpty(early)
	}
	rec.Raw = record.Raw{
		Partition: p.id, First: r.head.Start, Next: r.head.Next, Ranges: r.ranges.clone(),
		Events: r.tally.Events, SHA256: r.tally.SHA256(), NextSeq: r.head.NextSeq,
	}
	switch {
	case fold.Ended():
		return &rec, base, nil
	case !r.head.Open():
		lastAt := r.head.LastAt
		rec.Status, rec.Synthetic, rec.EndedAt = record.StatusAbandoned, true, &lastAt
		rec.Terminal = abandonment(p.cfg.IdleLimit)
	}
	rec.SinceSnapshot = r.head.SinceSnapshot
	err := r.buildOpen(&rec, fold)
	return &rec, base, err
}

// buildOpen adds what a fold needs to go on from the record.
func (r *run) buildOpen(rec *record.Run, fold *compact.Run) error {
	checkpoint, err := fold.Checkpoint()
	if err != nil {
		return fmt.Errorf("building record: %w", err)
	}
	hash, err := r.tally.HashState()
	if err != nil {
		return err
	}
	rec.Open = &record.Open{Fold: checkpoint, Hash: hash, LastAt: r.head.LastAt, Pending: r.head.Pending}
	return nil
}

// historyKey names the history at the run's end; where the run only appended to its base, it costs
// what was appended.
func (p *partition) historyKey(t *thread, rec *record.Run, fold *compact.Run) lineage.Key {
	if h := t.heads[rec.Base]; h != nil && rec.Layout == nil && h.MessageCount+len(rec.Messages) == rec.MessageCount {
		return h.HistoryKey.Extend(rec.Messages)
	}
	return lineage.KeyOf(fold.Messages())
}

// abandonment is the terminal event that stands in for the one that never came.
func abandonment(limit time.Duration) json.RawMessage {
	b := []byte(`{"type":"RUN_ERROR","message":`)
	b = agui.AppendString(b, "The run was silent for longer than "+limit.String()+".")
	return append(b, `,"code":"`+codeAbandoned+`"}`...)
}
