package kafka

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Lag measures the lag of a group's member: the age of the oldest record that the member has not finished. Seconds computes the
// age, so it rises while nothing is finished. All methods are safe for concurrent use.
type Lag struct {
	now func() time.Time

	mu         sync.Mutex
	partitions map[int32]*waiting
}

// waiting is the state of one partition.
type waiting struct {
	// opening is the time since which the partition is assigned but not read; zero once it is read.
	opening time.Time
	// oldest and newest are the extreme times of the records that were read and are neither taken nor done; zero: there are none.
	oldest, newest time.Time
	// takenOldest and takenNewest are the same for the records that are taken and not done.
	takenOldest, takenNewest time.Time
	// doneTo is the time of the newest record of the last Done, doneAt the time of this call.
	doneTo, doneAt time.Time
	// stalled is the time of the oldest record that the broker does not return or the member does not read; zero: there is none.
	stalled time.Time
}

// afterglow is how long the newest finished record still counts. In a backlog, the next records may not have been read yet, and the
// lag would drop to zero between two fetches.
const afterglow = time.Second

// NewLag returns a Lag without partitions.
func NewLag(now func() time.Time) *Lag {
	return &Lag{now: now, partitions: map[int32]*waiting{}}
}

// Opening adds partitions that are assigned but not read yet. Their lag counts from now. If they were already assigned, it counts
// from the oldest record that is not done, or from the earlier Opening.
func (l *Lag) Opening(partitions ...int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range partitions {
		since := l.now()
		if w := l.partitions[p]; w != nil {
			for _, before := range []time.Time{w.opening, w.undone()} {
				if !before.IsZero() && before.Before(since) {
					since = before
				}
			}
		}
		l.partitions[p] = &waiting{opening: since}
	}
}

// Opened marks assigned partitions as read from now on, and adds those that are missing.
func (l *Lag) Opened(partitions ...int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range partitions {
		if w := l.partitions[p]; w != nil {
			w.opening = time.Time{}
		} else {
			l.partitions[p] = &waiting{}
		}
	}
}

// Gone removes partitions.
func (l *Lag) Gone(partitions ...int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range partitions {
		delete(l.partitions, p)
	}
}

// Only removes all partitions except the given ones.
func (l *Lag) Only(partitions ...int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.partitions, func(p int32, _ *waiting) bool { return !slices.Contains(partitions, p) })
}

// Read adds a record, which counts until Done. The argument at is its timestamp.
func (l *Lag) Read(partition int32, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.partitions[partition]
	if w == nil {
		return // the partition was revoked: its next owner reads the record again
	}
	if w.oldest.IsZero() || at.Before(w.oldest) {
		w.oldest = at
	}
	if at.After(w.newest) {
		w.newest = at
	}
}

// Taken marks all records read so far from partitions as taken. The next Done then finishes only these, not the records read later.
func (l *Lag) Taken(partitions ...int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range partitions {
		if w := l.partitions[p]; w != nil {
			w.takenOldest, w.takenNewest = w.oldest, w.newest
			w.oldest, w.newest = time.Time{}, time.Time{}
		}
	}
}

// Done finishes the taken records of a partition, or all records read if none is taken.
func (l *Lag) Done(partition int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.partitions[partition]
	switch {
	case w == nil:
	case !w.takenOldest.IsZero():
		w.doneTo, w.doneAt = w.takenNewest, l.now()
		w.takenOldest, w.takenNewest, w.stalled = time.Time{}, time.Time{}, time.Time{}
	case !w.oldest.IsZero():
		w.doneTo, w.doneAt = w.newest, l.now()
		w.oldest, w.newest, w.stalled = time.Time{}, time.Time{}, time.Time{}
	}
}

// undone returns the time of the oldest record that was read but is not done; zero: there is none.
func (w *waiting) undone() time.Time {
	if w.takenOldest.IsZero() || !w.oldest.IsZero() && w.oldest.Before(w.takenOldest) {
		return w.oldest
	}
	return w.takenOldest
}

// reading maps each partition that is read to whether it has records that are not done.
func (l *Lag) reading() map[int32]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[int32]bool, len(l.partitions))
	for p, w := range l.partitions {
		if w.opening.IsZero() {
			out[p] = !w.undone().IsZero()
		}
	}
	return out
}

// stall sets waiting.stalled of all partitions. Partitions missing in the argument since are not stalled. Done resets it.
func (l *Lag) stall(since map[int32]time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, w := range l.partitions {
		w.stalled = since[p]
	}
}

// Seconds returns the age of the oldest record that is not done, over all partitions; 0 if there is none. Of unread records, it
// counts only those that a StallWatch has found.
func (l *Lag) Seconds() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	var longest time.Duration
	for _, w := range l.partitions {
		if !w.stalled.IsZero() {
			longest = max(longest, now.Sub(w.stalled))
		}
		switch {
		case !w.undone().IsZero():
			longest = max(longest, now.Sub(w.undone()))
		case !w.opening.IsZero():
			longest = max(longest, now.Sub(w.opening))
		case !w.doneAt.IsZero() && now.Sub(w.doneAt) < afterglow:
			longest = max(longest, now.Sub(w.doneTo))
		}
	}
	return longest.Seconds()
}
