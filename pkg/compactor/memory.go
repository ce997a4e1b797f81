package compactor

import (
	"cmp"
	"slices"
	"time"
)

// evictAfter is how long a run without unwritten events stays in memory.
const evictAfter = 30 * time.Second

// busyFor is how long a run that is spoken of stays in memory in any case: to load it again with its
// next event would cost more than it holds.
const busyFor = time.Second

// runOverhead is what a run holds in memory, with its thread, before it has said anything:
// TestRun_HoldsAboutWhatItIsCountedFor.
const runOverhead = 7 << 10

// size is about what the run holds in memory: as much as its last record and what came since, and what
// every run does.
func (r *run) size() int { return runOverhead + r.savedSize + r.newBytes }

// share gives the partition its part of what the process may hold, which has so many partitions.
func (p *partition) share(partitions int) {
	p.mostRunBytes = p.cfg.OpenRunBytes / partitions
}

// relieve asks for records of the runs that have been silent longest, where open runs hold more memory
// than they may: once those are committed, the runs can leave (evict).
func (p *partition) relieve(now time.Time) {
	if p.runBytes <= p.mostRunBytes {
		return
	}
	var silent []*run
	over := p.runBytes - p.mostRunBytes
	for _, r := range p.runs {
		switch _, dirty := p.dirty[r]; {
		case !dirty && r.recorded:
			over -= r.size() // it can leave as it is
		case !r.unfit && now.Sub(r.touchedAt) >= busyFor:
			silent = append(silent, r)
		}
	}
	slices.SortFunc(silent, longestSilent)
	for _, r := range silent {
		if over <= 0 {
			return
		}
		r.due = true
		p.dirty[r] = struct{}{}
		over -= r.size()
	}
}

func longestSilent(a, b *run) int {
	return cmp.Or(a.touchedAt.Compare(b.touchedAt), cmp.Compare(a.head.Start, b.head.Start))
}

// evict lets go of what committed records can give back: runs after a while of silence, or sooner where
// open runs hold more memory than they may. What no committed record holds stays, and so do, beyond the
// bound, the runs that are spoken of right now.
func (p *partition) evict(now time.Time) error {
	if now.Sub(p.evictedAt) < time.Second {
		return nil
	}
	p.evictedAt = now
	p.runBytes = 0
	var clean []*run
	for _, r := range p.runs {
		p.runBytes += r.size()
		if _, dirty := p.dirty[r]; !dirty && r.recorded {
			clean = append(clean, r)
		}
	}
	slices.SortFunc(clean, longestSilent)
	for _, r := range clean {
		silence := now.Sub(r.touchedAt)
		if silence < busyFor || silence < evictAfter && p.runBytes <= p.mostRunBytes {
			break
		}
		if r.fold != nil {
			// The record that was committed says the same of the history as the fold.
			if err := r.thread.lineage.Add(r.head.Run); err != nil {
				return err
			}
		}
		if r.head.Open() {
			p.silent[r.key] = r.head.LastAt
		}
		p.letGo(r)
		p.runBytes -= r.size()
	}
	p.evictThreads()
	return nil
}

// maxThreads is how many threads stay at hand that have no run in memory.
const maxThreads = 4096

func (p *partition) evictThreads() {
	if len(p.threads) <= maxThreads {
		return
	}
	busy := map[*thread]bool{}
	for _, r := range p.runs {
		busy[r.thread] = true
	}
	idle := make([]*thread, 0, len(p.threads))
	for _, t := range p.threads {
		if !busy[t] {
			idle = append(idle, t)
		}
	}
	slices.SortFunc(idle, func(a, b *thread) int { return cmp.Compare(a.usedAt, b.usedAt) })
	for _, t := range idle[:min(len(idle), len(p.threads)-maxThreads/2)] {
		delete(p.threads, t.key)
	}
}
