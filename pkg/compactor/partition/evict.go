package partition

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// evictAfter is how long a run without unwritten events stays in memory.
const evictAfter = 30 * time.Second

// busyFor is how long a run that is spoken of stays in memory in any case: to load it again with its
// next event would cost more than it holds.
const busyFor = time.Second

// evict lets go of what committed records can give back: runs after a while of silence, or sooner where
// open runs hold more memory than they may. What no committed record holds stays, and so do, beyond the
// bound, the runs that are spoken of right now.
func (p *Processor) evict(now time.Time) error {
	if now.Sub(p.runs.lookedAt) < time.Second {
		if p.unloading {
			return p.evictThreads(now)
		}
		return nil
	}
	for _, r := range p.runs.look(now) {
		silence := now.Sub(r.touchedAt)
		if silence < busyFor || silence < evictAfter && p.runs.bytes <= p.share.runBytes {
			break
		}
		if r.Fold != nil || r.meta.Placed {
			// The record that was committed says the same of the history as the fold.
			if err := r.thread.lineage.Add(r.meta.Run); err != nil {
				return err
			}
		}
		p.runs.drop(r)
		p.runs.bytes -= r.size()
	}
	return p.evictThreads(now)
}

// maxThreadRunsInMemory is the most run metadata that all threads in memory of a process hold together. A thread itself counts for
// threadOverhead runs, and each run for some metadataBytes: TestThread_HoldsAboutWhatItIsCountedFor.
const (
	maxThreadRunsInMemory = 64 << 10
	threadOverhead        = 2
	metadataBytes         = 2 << 10
)

// unloadReads is how often threads that leave sealed runs may read the local stores of a process at once: 0.1 s, by some 50 µs each.
const unloadReads = 1_500

// evictThreads lets go of what the local store has of threads, where the threads in memory hold more than they may: half of
// that stays. Threads without a run in memory go as a whole, least recently used first; then of the others the runs
// that are sealed, which come back as they are asked for (loader): of those first that have most of them, and no more at once than
// unloadReads; the next commit goes on (unloading).
func (p *Processor) evictThreads(now time.Time) error {
	p.unloading = false
	held := 0
	for _, t := range p.threads {
		held += t.size()
	}
	if held <= p.share.threadRuns {
		return nil
	}
	busy := map[*thread]bool{}
	for _, r := range p.runs.byKey {
		busy[r.thread] = true
	}
	type candidate struct {
		*thread
		frees int
	}
	var candidates []candidate
	for _, t := range slices.SortedFunc(maps.Values(p.threads), func(a, b *thread) int { return a.usedAt.Compare(b.usedAt) }) {
		if held <= p.share.threadRuns/2 {
			return nil
		}
		stays := p.mustStay(t)
		switch {
		case !busy[t] && (stays <= threadOverhead+1 || now.Sub(t.usedAt) >= busyFor):
			delete(p.threads, t.key)
			held -= t.size()
		case t.size() > stays:
			candidates = append(candidates, candidate{t, t.size() - stays})
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return cmp.Compare(b.frees, a.frees) })
	reads := 0
	for _, t := range candidates {
		if held <= p.share.threadRuns/2 {
			return nil
		}
		if reads >= p.share.unloadReads && reads > 0 {
			p.unloading = true
			return nil
		}
		before := t.size()
		if err := p.unload(t.thread); err != nil {
			return err
		}
		held += t.size() - before
		reads += 2 + len(t.open)
	}
	return nil
}

// mustStay is about what a thread that is spoken of holds in any case: what is open, the parents of that, and the run that
// ended last. Below the processed offset that is what ended behind this record as well: it is not worth while then to leave less than half.
func (p *Processor) mustStay(t *thread) int {
	stays := threadOverhead + 2*len(t.open) + 1
	if p.next >= p.progress.Processed {
		return stays
	}
	for _, h := range t.runs {
		if h.Sealed && h.Next >= p.next {
			stays++
		}
	}
	return 2 * stays
}

// unload replaces a thread by one with its open runs only; the loader reads the others from the local store. All that has
// ended must be committed.
func (p *Processor) unload(t *thread) error {
	fresh, err := p.newThread(t.key, t.tenant, t.id, t.open)
	if err != nil {
		return err
	}
	fresh.erased, fresh.usedAt, fresh.headers = t.erased, t.usedAt, t.headers
	*t = *fresh // runs in memory have it
	if err := p.loadEnded(t); err != nil {
		return err
	}
	for _, h := range t.open {
		r := h.live
		if r == nil || r.Fold == nil {
			continue
		}
		if h.Parent != "" { // what its end rests on
			if err := t.load(h.Parent, h.Start); err != nil {
				return err
			}
		}
		if err := t.live(h, r.Fold.Messages); err != nil {
			return err
		}
	}
	return nil
}
