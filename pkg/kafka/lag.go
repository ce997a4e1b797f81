package kafka

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Lag knows how long what a group's member has to deal with has waited: the measure that says whether it
// keeps up. It is asked when somebody wants to know, not written down when something was done, so that
// it rises while nothing is done. All methods may be called at the same time.
type Lag struct {
	now func() time.Time

	mu         sync.Mutex
	partitions map[int32]*waiting
}

// waiting is what waits on one partition.
type waiting struct {
	// opening is since when the partition is ours and not read yet; zero once it is.
	opening time.Time
	// oldest and newest are the times of the records that were read and are not done; zero: there are none.
	oldest, newest time.Time
	// takenOldest and takenNewest are those of the records among them that are being worked on (Taken).
	takenOldest, takenNewest time.Time
	// doneTo is the time of the newest record that is done, doneAt when it was.
	doneTo, doneAt time.Time
	// stalled is the time of the oldest record that is there and is not given out; zero: there is none.
	stalled time.Time
}

// afterglow is how long, after what was read is done, the last of it stands for what lies behind it and
// may not have been read yet: in the middle of a backlog the lag would seem to fall to zero at times.
const afterglow = time.Second

// NewLag makes a Lag by a clock.
func NewLag(now func() time.Time) *Lag {
	return &Lag{now: now, partitions: map[int32]*waiting{}}
}

// Opening says that partitions are ours and not read yet. What waits there is not known: it counts
// from now on, or, where they were ours before, since what waited there then.
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

// Opened says that partitions are ours and are read from now on.
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

// Gone says that partitions are not ours any more.
func (l *Lag) Gone(partitions ...int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range partitions {
		delete(l.partitions, p)
	}
}

// Only forgets all other partitions.
func (l *Lag) Only(partitions ...int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.partitions, func(p int32, _ *waiting) bool { return !slices.Contains(partitions, p) })
}

// Read says that a record with a time was read. It waits until Done.
func (l *Lag) Read(partition int32, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.partitions[partition]
	if w == nil {
		return // taken away meanwhile: its next owner reads it again
	}
	if w.oldest.IsZero() || at.Before(w.oldest) {
		w.oldest = at
	}
	if at.After(w.newest) {
		w.newest = at
	}
}

// Taken says that what was read of partitions until now is being worked on: the next Done is of that, and of nothing that is
// read meanwhile. A Done that came before it was of the same.
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

// Done says that everything is done that was taken of a partition or, where nothing was, everything that was read.
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

// undone is the time of the oldest record that was read and is not done; zero: there is none.
func (w *waiting) undone() time.Time {
	if w.takenOldest.IsZero() || !w.oldest.IsZero() && w.oldest.Before(w.takenOldest) {
		return w.oldest
	}
	return w.takenOldest
}

// reading returns the partitions that are ours and read, and whether something was read there and is not done.
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

// stall says on which partitions something waits that was not read, and since when; on all others nothing
// does. Something that is done on a partition says the same of it.
func (l *Lag) stall(since map[int32]time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, w := range l.partitions {
		w.stalled = since[p]
	}
}

// Seconds is the age of the oldest record that is not done, over all partitions; 0 where there is none. Of
// records that were not read it knows what a StallWatch has found.
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
