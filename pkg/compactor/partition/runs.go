package partition

import (
	"cmp"
	"fmt"
	"time"

	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// register adds a new run to its thread and to the run table.
func (p *Processor) register(r *run) {
	r.thread.add(r.meta)
	p.runs.keep(r)
	r.expiry = p.expiring.add(r.key, p.clock.recordTime(r.touchedAt))
	if r.thread.hasOtherUnsealed(r.meta) {
		p.writeUnsealed(r.thread)
	}
}

// loadByKey loads a run by its record key, for the next transaction, and counts it towards the room for expiries. One that was
// not in memory leaves with that transaction.
func (p *Processor) loadByKey(key string, now time.Time) (*run, error) {
	parts, err := record.SplitKey(key)
	if err != nil {
		return nil, fmt.Errorf("loading run: %w", err)
	}
	threadKey, err := record.ThreadKey(parts[0], parts[1])
	if err != nil {
		return nil, fmt.Errorf("loading run: %w", err)
	}
	t, err := p.thread(threadKey, parts[0], parts[1])
	if err != nil {
		return nil, err
	}
	h := t.runs[parts[2]]
	if h == nil {
		return nil, fmt.Errorf("loading run: %w: %s", runstore.ErrMissing, key)
	}
	left := h.live == nil
	r, err := p.load(t, h, now)
	if err != nil {
		return nil, err
	}
	if left {
		r.touchedAt = time.Time{}
	}
	p.room.expiries.Add(int64(-r.size()))
	return r, nil
}

// load loads an unsealed run into memory.
func (p *Processor) load(t *thread, h *threadRun, now time.Time) (*run, error) {
	if h.live != nil {
		return h.live, nil
	}
	key, err := record.RunKey(t.tenant, t.id, h.ID)
	if err != nil {
		return nil, fmt.Errorf("loading run: %w", err)
	}
	rec, size, err := p.recordOf(key)
	if err != nil {
		return nil, err
	}
	if rec.Open == nil {
		return nil, fmt.Errorf("loading run: its record of offset %d is not open", rec.Raw.Next)
	}
	r := newRun(t, key, h, now)
	r.expiry = cmp.Or(p.expiring.byKey[key], p.closing.byKey[key])
	if err := r.resume(rec, size); err != nil {
		return nil, err
	}
	if rec.Open.Pending {
		if rec.Open.Placed {
			if r.resolution, err = p.resolutionOf(t, h, rec); err != nil {
				return nil, err
			}
			r.isBasedOn(r.resolution.parent)
		}
	} else {
		// Its end needs the parent: see sinceSnapshot, historyKey.
		if rec.ParentRunID != "" {
			if err := t.load(rec.ParentRunID, h.Start); err != nil {
				return nil, err
			}
		}
		if rec.Base != "" {
			if r.base, err = p.history(t, rec.Base); err != nil {
				return nil, err
			}
			r.isBasedOn(r.base)
		}
		at, err := lineage.RestoreFrom(r.base.Unshare(), contentOf(rec))
		if err != nil {
			return nil, fmt.Errorf("loading run: %w", err)
		}
		if r.Fold, err = compact.Resume(at.Messages, at.State, rec.Open.Fold); err != nil {
			return nil, fmt.Errorf("loading run: %w", err)
		}
		r.rec.FoldVersion = rec.FoldVersion // the rules under which it began
		r.rec.Kept = rec.Kept               // whatever the setting is by now
		r.Fold.Keep(rec.Kept)
		r.Early, r.InputSHA256 = nil, rec.InputSHA256
		r.rec.Lineage, r.rec.Base = rec.Lineage, rec.Base
		r.rec.Input, r.rec.InputMessages, r.rec.InputLayout = rec.Input, rec.InputMessages, rec.InputLayout
		r.rec.InputForm, r.rec.Rewrote, r.rec.Resumes, r.rec.InputSHA256 = rec.InputForm, rec.Rewrote, rec.Resumes, rec.InputSHA256
		if err := r.show(); err != nil {
			return nil, err
		}
	}
	p.runs.keep(r)
	return r, nil
}

// resume sets what the record of an unsealed run says of it, except for lineage and the fold.
func (r *run) resume(rec *record.Run, size int) error {
	r.written.exists, r.written.open, r.written.bytes = true, rec.Status == record.StatusRunning, size
	r.ranges, r.Seq.Missing = record.NewRanges(rec.Raw.Ranges), rec.Open.MissingSeqs
	r.Tally.Events, r.Tally.TimeToFirstToken = rec.Raw.Events, rec.Stats.TimeToFirstToken
	r.Tally.StartedAt, r.Tally.EndedAt = rec.StartedAt, rec.Open.LastAt
	r.Tally.RestoreCallTimes(rec)
	for _, n := range rec.Stats.EventBytes {
		r.eventBytes += n
	}
	r.rec.RawLost, r.rec.Cut = rec.RawLost, rec.Cut
	r.Producer.Agent, r.Producer.Labels = rec.Agent, rec.Labels
	if err := r.Tally.RestoreHash(rec.Open.Hash); err != nil {
		return err
	}
	if !rec.Open.Pending {
		return nil
	}
	if rec.Stats.Anomalies != nil {
		r.Early = rec.Stats.Anomalies
		r.rec.FoldVersion = rec.FoldVersion // the rules that counted them
	}
	in, err := fold.PendingInput(rec)
	if err != nil {
		return fmt.Errorf("loading run: %w", err)
	}
	if in != nil {
		r.Input, r.InputSHA256 = in, rec.InputSHA256
	}
	return nil
}
