package partition

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// evictAfter is how long a run without unwritten events stays in memory.
const evictAfter = 30 * time.Second

// busyFor is how long a run stays in memory after its last record, even if memory is short. Loading it again for its next event would cost
// more than keeping it.
const busyFor = time.Second

// evict drops runs that can be loaded again from committed records: after evictAfter, or sooner if open runs exceed their memory. Runs with
// unwritten events and busy runs always stay.
func (p *Processor) evict(now time.Time) error {
	if now.Sub(p.runs.lookedAt) < time.Second {
		if p.unloading {
			return p.evictThreads(now)
		}
		return nil
	}
	for _, r := range p.runs.look(now) {
		silence := now.Sub(r.touchedAt)
		if silence < busyFor || silence < evictAfter && p.runs.lookedBytes <= p.limits.runBytes {
			break
		}
		if r.meta.Resolved() {
			// Lineage asked the fold for its history until now. The committed record has the same one.
			if err := r.thread.Lineage.Add(r.meta.Run); err != nil {
				return err
			}
		}
		p.runs.lookedBytes -= r.size()
		p.runs.drop(r)
	}
	return p.evictThreads(now)
}

// maxThreadRunsInMemory is the most runs whose metadata all threads in memory of a process hold together. A thread itself counts as
// threadOverhead runs, and each run takes some metadataBytes: TestThread_HoldsAboutWhatItIsCountedFor.
const (
	maxThreadRunsInMemory = 64 << 10
	threadOverhead        = 2
	metadataBytes         = 2 << 10
)

// unloadReads is how many reads of the local stores evictThreads may do at once in a process: 0.1 s, at some 50 µs each.
const unloadReads = 1_500

// evictThreads drops metadata of runs, down to half of the limit, if the threads in memory hold more than the limit. First it drops threads
// without a run in memory, least recently used first. Then it drops sealed runs of the other threads, starting with the threads that have
// most of them; the loader loads them again as needed. It stops after unloadReads reads, and the next commit continues (unloading).
func (p *Processor) evictThreads(now time.Time) error {
	p.unloading = false
	held := 0
	for _, t := range p.threads {
		held += t.size()
	}
	if held <= p.limits.threadRuns {
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
		if held <= p.limits.threadRuns/2 {
			return nil
		}
		stays := t.mustStay()
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
		if held <= p.limits.threadRuns/2 {
			return nil
		}
		if reads >= p.limits.unloadReads && reads > 0 {
			p.unloading = true
			return nil
		}
		before := t.size()
		if err := t.unload(); err != nil {
			return err
		}
		held += t.size() - before
		reads += 2 + len(t.Unsealed())
	}
	return nil
}

// mustStay returns about how many runs a busy thread always keeps: its open runs, their parents, and the run that ended last. Below the
// processed offset it also keeps the runs that ended at or after the next record; then the number is doubled, as unloading less than half
// of a thread is not worth its reads.
func (t *thread) mustStay() int {
	p := t.p
	stays := threadOverhead + 2*len(t.Unsealed()) + 1
	if !p.rebuilds() {
		return stays
	}
	for _, h := range t.Runs() {
		if h.Sealed && h.Next >= p.next {
			stays++
		}
	}
	return 2 * stays
}
