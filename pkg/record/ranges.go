package record

import "math"

// Ranges collects the offsets of a run's records as up to MaxRanges half-open, rising, disjoint ranges (Raw.Ranges).
type Ranges struct {
	list [][2]int64
	// closing is the index of the range behind the smallest gap, the earliest of equal ones; 0 where
	// that is not known.
	closing int
}

// NewRanges continues a list that List returned.
func NewRanges(list [][2]int64) Ranges { return Ranges{list: list} }

// Add takes in an offset, which is not below any before it. Above MaxRanges the smallest gap is
// closed, the earliest of equal ones, so that the result does not depend on how events were batched.
func (r *Ranges) Add(offset int64) {
	n := len(r.list)
	switch {
	case n > 0 && offset <= r.list[n-1][1]:
		r.list[n-1][1] = max(r.list[n-1][1], offset+1)
		return
	case n < MaxRanges:
		r.list = append(r.list, [2]int64{offset, offset + 1})
		return
	case r.closing == 0:
		r.closing = r.smallest()
	}
	at := r.closing
	least := r.gap(at)
	if offset-r.list[n-1][1] < least { // the new gap is the smallest
		r.list[n-1][1] = offset + 1
		return
	}
	r.list[at-1][1] = r.list[at][1]
	copy(r.list[at:], r.list[at+1:])
	r.list[n-1] = [2]int64{offset, offset + 1}
	// Runs that speak in turn have many gaps of one size: the next one of them follows.
	r.closing = 0
	for i := at; i < n; i++ {
		if r.gap(i) == least {
			r.closing = i
			return
		}
	}
}

// AddRange takes in a range that does not begin below any before it, as Add takes in its first offset. It closes no gap of its own.
func (r *Ranges) AddRange(part [2]int64) {
	r.Add(part[0])
	last := &r.list[len(r.list)-1]
	last[1] = max(last[1], part[1])
}

// gap is the size of the gap before the i-th range, from 1.
func (r *Ranges) gap(i int) int64 { return r.list[i][0] - r.list[i-1][1] }

// smallest returns the index of the range behind the smallest gap, the earliest of equal ones.
func (r *Ranges) smallest() int {
	at, least := 1, int64(math.MaxInt64)
	for i := 1; i < len(r.list); i++ {
		if g := r.gap(i); g < least {
			at, least = i, g
		}
	}
	return at
}

// List returns a copy that later calls of Add do not change.
func (r *Ranges) List() [][2]int64 { return append([][2]int64(nil), r.list...) }
