package record

import "math"

// Ranges collects the offsets of a run's records as up to MaxRanges half-open, rising, disjoint ranges (Raw.Ranges).
type Ranges struct {
	list [][2]int64
	// closing is the index of the range after the smallest gap, the earliest of equal ones; 0 if it is unknown.
	closing int
}

// NewRanges continues a list that List returned.
func NewRanges(list [][2]int64) Ranges { return Ranges{list: list} }

// Add adds an offset, which must not be below any earlier one. Above MaxRanges ranges it closes the smallest gap, the
// earliest of equal ones, so that the result does not depend on how events were batched.
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
	// Interleaved runs have many gaps of one size: search on from here.
	r.closing = 0
	for i := at; i < n; i++ {
		if r.gap(i) == least {
			r.closing = i
			return
		}
	}
}

// gap returns the size of the gap before the i-th range, from 1.
func (r *Ranges) gap(i int) int64 { return r.list[i][0] - r.list[i-1][1] }

// smallest returns the index of the range after the smallest gap, the earliest of equal ones.
func (r *Ranges) smallest() int {
	at, least := 1, int64(math.MaxInt64)
	for i := 1; i < len(r.list); i++ {
		if g := r.gap(i); g < least {
			at, least = i, g
		}
	}
	return at
}

// List returns a copy of the ranges.
func (r *Ranges) List() [][2]int64 { return append([][2]int64(nil), r.list...) }
