package partition

import (
	"cmp"
	"slices"
	"time"
)

// runTable holds the runs of a partition that are in memory.
type runTable struct {
	byKey map[string]*run // by record key
	// changed are those with unwritten events or with a requested record.
	changed map[*run]struct{}
	// bytes is the memory of all runs, and lookedBytes their memory at lookedAt, minus what was evicted since.
	bytes, lookedBytes int
	lookedAt           time.Time
	// overMemory means that the runs take more than twice their limit, and that the transaction had no room to write enough of them.
	overMemory bool
}

func newRunTable() runTable {
	return runTable{byKey: map[string]*run{}, changed: map[*run]struct{}{}}
}

// keep adds a run.
func (t *runTable) keep(r *run) {
	t.byKey[r.key], r.meta.live = r, r
	t.recount(r)
}

// recount updates the memory of a run.
func (t *runTable) recount(r *run) {
	size := r.size()
	t.bytes += size - r.counted
	r.counted = size
}

// drop evicts a run.
func (t *runTable) drop(r *run) {
	if r.meta.live == r {
		t.bytes -= r.counted
		r.counted = 0
	}
	delete(t.byKey, r.key)
	delete(t.changed, r)
	r.meta.live = nil
}

// change marks a run for the next transaction to consider.
func (t *runTable) change(r *run) { t.changed[r] = struct{}{} }

// isWritten reports whether a committed record has all of a run, so that the run can be evicted.
func (t *runTable) isWritten(r *run) bool {
	_, changed := t.changed[r]
	return !changed && r.written.exists
}

// look returns the runs that can be evicted, least recently used first.
func (t *runTable) look(now time.Time) (written []*run) {
	t.lookedAt, t.lookedBytes = now, 0
	for _, r := range t.byKey {
		t.recount(r)
		t.lookedBytes += r.size()
		if t.isWritten(r) {
			written = append(written, r)
		}
	}
	slices.SortFunc(written, leastRecentlyUsed)
	return written
}

// relieve requests checkpoints of the least recently used open runs if runs take more than limit; evict drops them after the commit. It
// uses half of the transaction's room for checkpoints, so that other due runs have some, and requests one at least. If far too much
// stays in memory, nothing is processed before the next transaction (overMemory).
func (t *runTable) relieve(limit int, room *Room, now time.Time) {
	t.overMemory = false
	if t.lookedBytes <= limit {
		return
	}
	var idle []*run
	over := t.lookedBytes - limit
	for _, r := range t.byKey {
		switch {
		case t.isWritten(r), r.due:
			over -= r.size() // it can be evicted now, or is written anyway
		case !r.overLimit && now.Sub(r.touchedAt) >= busyFor:
			idle = append(idle, r)
		}
	}
	slices.SortFunc(idle, leastRecentlyUsed)
	half := room.checkpoints.Load() / 2
	for i, r := range idle {
		if over <= 0 {
			return
		}
		if i > 0 && room.checkpoints.Load() <= half {
			t.overMemory = over > limit
			return
		}
		r.due = true
		t.change(r)
		room.checkpoints.Add(int64(-r.size()))
		over -= r.size()
	}
}

func leastRecentlyUsed(a, b *run) int {
	return cmp.Or(a.touchedAt.Compare(b.touchedAt), cmp.Compare(a.meta.Start, b.meta.Start))
}
