package partition

import (
	"math"
	"slices"
	"time"

	"github.com/skeinhq/skein/internal/few"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
)

// thread is one thread in memory: its unsealed runs, those that were sealed since it came into memory, and those that were needed
// (loader). fold.Thread decides about its records; this is its fold.Directory.
type thread struct {
	*fold.Thread[*threadRun]
	p               *Processor
	key, tenant, id string
	// loader loads the runs that are not in memory; nil if all are.
	loader *loader

	// tips has the depth of each branch's deepest sealed run in memory.
	tips few.Map[string, int]
	// erased is the offset below which events of the thread were erased; 0 if none were.
	erased int64
	usedAt time.Time // for eviction: when the thread's last record came
	// noExpiryBefore is a stream time before which none of its runs expires; zero if it is not known.
	noExpiryBefore time.Time
	// headers are those of the thread's last record.
	headers record.Headers
	again   repetition // of the last sealed run that is sent again
}

// runKey returns the key of a run's record.
func (t *thread) runKey(id string) string { return runKey(t.key, id) }

func runKey(thread, id string) string { return thread + "/" + record.EscapeKeyPart(id) }

// newThread returns a thread with these runs.
func (p *Processor) newThread(key, tenant, id string, runs []*threadRun) (*thread, error) {
	t := &thread{p: p, key: key, tenant: tenant, id: id}
	return t, t.reset(runs)
}

// reset replaces all runs of the thread.
func (t *thread) reset(runs []*threadRun) (err error) {
	t.loader, t.tips = nil, few.Map[string, int]{}
	for _, h := range runs {
		t.noteTip(h)
	}
	if t.Thread, err = fold.NewThread(fold.Settings{Keep: t.p.cfg.KeepEvents, Fits: t.p.cfg.fits}, t, runs...); err != nil {
		return err
	}
	t.Lineage.SetKnown(t)
	return nil
}

func (t *thread) noteTip(h *threadRun) {
	if h.Sealed {
		t.tips.Set(h.Branch, max(t.tips.At(h.Branch), h.Depth))
	}
}

// seal updates the thread after a run was sealed.
func (t *thread) seal(h *threadRun) error {
	t.Seal(h)
	t.noteTip(h)
	return t.Lineage.Add(h.Run)
}

// Load implements fold.Directory.
func (t *thread) Load(id string, offset int64) error {
	if t.loader == nil {
		return nil
	}
	return t.loader.ByID(id, offset)
}

// New implements fold.Directory.
func (t *thread) New(id, clientRunID string, first *fold.Decoded) (*threadRun, *fold.Run, error) {
	h := &threadRun{Metadata: fold.NewMetadata(id, clientRunID, first.Offset)}
	r := newRun(t, t.runKey(id), h, fold.NewRun(t.id, id, h.ClientRunID()), t.usedAt)
	if ev := first.Payload(); ev != nil {
		r.rawLost = t.p.mayHaveBegunInGap(ev, t.usedAt)
	}
	h.live = r
	if first.Input() == nil {
		return h, r.Run, nil
	}
	var err error
	r.again, err = t.SameInput(t.Named(h.ClientRunID(), first.Offset), first.SHA256())
	return h, r.Run, err
}

// Withdraw implements fold.Directory.
func (t *thread) Withdraw(h *threadRun) bool {
	r := h.live
	if r == nil || r.written.exists {
		return false
	}
	t.p.runs.drop(r)
	t.p.retirement.expiring.drop(r.key)
	t.p.retirement.closing.drop(r.key)
	return true
}

// Resume implements fold.Directory.
func (t *thread) Resume(h *threadRun) (*fold.Run, error) {
	r, err := t.p.load(t, h, t.usedAt)
	if err != nil {
		return nil, err
	}
	return r.Run, nil
}

// Record implements fold.Directory: it returns the latest record of a run, committed or part of the next transaction.
func (t *thread) Record(h *threadRun) (*record.Run, error) {
	rec, _, err := t.p.recordOf(t.runKey(h.ID))
	return rec, err
}

// traceparent returns the trace context of a run; "" if it has none, or is not known.
func (t *thread) traceparent(run string) (string, error) {
	if h := t.Get(run); h != nil {
		if h.live != nil {
			return h.live.Producer.Traceparent, nil
		}
		return h.Traceparent, nil
	}
	runs, err := t.p.store.Thread(t.key).ByID(run, math.MaxInt64)
	if i := slices.IndexFunc(runs, func(m *fold.Metadata) bool { return m.ID == run }); i >= 0 {
		return runs[i].Traceparent, err
	}
	return "", err
}

// Any implements lineage.Known: it reports whether a run that is not live has one of these messages. Own messages are enough, as all others
// in a run's history are own messages of an ancestor.
func (t *thread) Any(ids []string, offset int64) (bool, error) {
	if known, err := t.p.unsaved.known[t.key].Any(ids, offset); known || err != nil {
		return known, err
	}
	wanted := func(m agui.Message) bool {
		_, ok := slices.BinarySearch(ids, m.ID)
		return ok
	}
	for _, h := range t.Unsealed() { // expired, and still in memory
		if h.live != nil && h.live.Fold != nil && h.IsExpired() && h.End < offset && slices.ContainsFunc(h.live.Fold.Messages(), wanted) {
			return true, nil
		}
	}
	looked, found := map[string]bool{}, false
	err := t.p.store.Thread(t.key).ByMessage(ids, offset, func(runs []*fold.Metadata) (more bool, err error) {
		for _, h := range threadRunsOf(runs) {
			if now := t.Get(h.ID); now != nil {
				h = now
			}
			// A run that ended later has an unknown history at the offset; no resolution there depends on it (announce).
			if looked[h.ID] || h.live != nil || h.Start < t.erased || !h.Resolved() || h.End >= offset {
				continue
			}
			looked[h.ID] = true
			rec, err := t.Record(h)
			if err != nil {
				return false, err
			}
			if found = slices.ContainsFunc(rec.Messages, wanted); found {
				return false, nil
			}
		}
		return true, nil
	})
	return found, err
}

// tip returns the depth of the deepest sealed run of a branch; 0 if there is none.
func (t *thread) tip(branch string) (int, error) {
	if t.loader != nil {
		if err := t.loader.tip(branch); err != nil {
			return 0, err
		}
	}
	return t.tips.At(branch), nil
}

// thread returns a thread by its key.
func (p *Processor) thread(key, tenant, id string) (*thread, error) {
	if t := p.threads[key]; t != nil {
		return t, nil
	}
	unsealed, err := p.store.Thread(key).Unsealed()
	if err != nil {
		return nil, err
	}
	t, err := p.newThread(key, tenant, id, threadRunsOf(unsealed))
	if err != nil {
		return nil, err
	}
	if err := t.loadEnded(); err != nil {
		return nil, err
	}
	if t.erased, err = p.store.Thread(key).ErasedBelow(); err != nil {
		return nil, err
	}
	p.threads[key] = t
	return t, nil
}

// loadEnded loads the sealed runs that a thread starts with: those that ended at or after the record being processed, and the one that
// ended last before it, which is the parent of most new runs.
func (t *thread) loadEnded() error {
	stored := t.p.store.Thread(t.key)
	last, all, err := stored.EndedAt(t.p.next - 1)
	if err != nil {
		return err
	}
	t.loader = &loader{thread: t, store: stored, requested: map[loaderKey]struct{}{}}
	if err := t.loader.put(last...); err != nil {
		return err
	}
	if all {
		t.loader = nil
	} else {
		t.Lineage.LoadFrom(t.loader)
	}
	return nil
}

// unload drops the sealed runs, which must be committed; the loader loads them again from the local store.
func (t *thread) unload() error {
	open := slices.Clone(t.Unsealed())
	if err := t.reset(open); err != nil {
		return err
	}
	if err := t.loadEnded(); err != nil {
		return err
	}
	t.noExpiryBefore = time.Time{}
	for _, h := range open {
		r := h.live
		if r == nil || r.Fold == nil {
			continue
		}
		if h.Parent != "" { // its end needs the parent
			if err := t.Load(h.Parent, h.Start); err != nil {
				return err
			}
		}
		if err := t.Show(&h.Metadata, r.Run); err != nil {
			return err
		}
	}
	return nil
}

// size returns about how much memory the thread takes, in runs.
func (t *thread) size() int { return threadOverhead + len(t.Runs()) }
