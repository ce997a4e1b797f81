package partition

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// register adds a new run to its thread and to the run table.
func (r *run) register() {
	p := r.thread.p
	r.thread.Add(r.meta)
	p.runs.keep(r)
	r.expiry = p.retirement.expiring.add(r.key, p.clock.recordTime(r.touchedAt))
	p.room.outputs.Add(-announcementBytes)
}

// loadByKey loads a run by its record key, for the next transaction, and counts it in the room for expiries. A run that was not in
// memory is evicted after that transaction.
func (p *Processor) loadByKey(key string, now time.Time) (*run, error) {
	parts, err := record.SplitKey(key)
	if err != nil {
		return nil, fmt.Errorf("loading run: %w", err)
	}
	t, err := p.thread(key[:strings.LastIndexByte(key, '/')], parts[0], parts[1])
	if err != nil {
		return nil, err
	}
	h := t.Get(parts[2])
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
	key := t.runKey(h.ID)
	rec, size, err := p.recordOf(key)
	if err != nil {
		return nil, err
	}
	var base lineage.History
	if rec.Base != "" {
		if base, err = t.History(rec.Base); err != nil {
			return nil, err
		}
	}
	if rec.ParentRunID != "" && !h.Pending { // for sinceSnapshot and historyKey
		if err := t.Load(rec.ParentRunID, h.Start); err != nil {
			return nil, err
		}
	}
	resumed, err := fold.Resume(rec, h.Run, base)
	if err != nil {
		return nil, fmt.Errorf("loading run: %w", err)
	}
	r := newRun(t, key, h, resumed, now)
	r.expiry = cmp.Or(p.retirement.expiring.byKey[key], p.retirement.closing.byKey[key])
	r.resume(rec, size, base)
	if err := r.show(); err != nil {
		return nil, err
	}
	p.runs.keep(r)
	return r, nil
}

// resume sets all but the fold of an unsealed run from its record.
func (r *run) resume(rec *record.Run, size int, base lineage.History) {
	r.written.exists, r.written.open, r.written.bytes = true, rec.Status == record.StatusRunning, size
	r.ranges = record.NewRanges(rec.Raw.Ranges)
	for _, n := range rec.Stats.EventBytes {
		r.eventBytes += n
	}
	r.rawLost, r.cutAt = rec.RawLost, rec.Cut
	if r.Fold == nil {
		if rec.Stats.Anomalies != nil || r.Placed != nil {
			r.foldVersion = rec.FoldVersion // the rules that counted them, or placed the run
		}
		if r.Placed != nil {
			r.setBase(r.Placed.Parent)
		}
		return
	}
	r.setOrigin(rec, base)
	if rec.Base != "" {
		r.setBase(base)
	}
	r.foldVersion = rec.FoldVersion // the rules under which it began
	r.kept = rec.Kept
}
