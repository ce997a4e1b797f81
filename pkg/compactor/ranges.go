package compactor

import (
	"math"

	"github.com/skeinhq/skein/pkg/record"
)

// ranges are half-open, rising, disjoint offset ranges.
type ranges struct {
	list [][2]int64
	// closing is the place of the range behind the smallest gap, the earliest of equal ones; 0 where
	// that is not known.
	closing int
}

// add takes in the offset, which is not below any before it. Above record.MaxRanges the smallest gap is
// closed, the earliest of equal ones, so that the result does not depend on how events were batched.
func (r *ranges) add(offset int64) {
	n := len(r.list)
	switch {
	case n > 0 && offset <= r.list[n-1][1]:
		r.list[n-1][1] = max(r.list[n-1][1], offset+1)
		return
	case n < record.MaxRanges:
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

// gap is the size of the gap before the i-th range, from 1.
func (r *ranges) gap(i int) int64 { return r.list[i][0] - r.list[i-1][1] }

// smallest returns the place behind the smallest gap, the earliest of equal ones.
func (r *ranges) smallest() int {
	at, least := 1, int64(math.MaxInt64)
	for i := 1; i < len(r.list); i++ {
		if g := r.gap(i); g < least {
			at, least = i, g
		}
	}
	return at
}

// clone returns a copy that later calls of add do not change.
func (r *ranges) clone() [][2]int64 { return append([][2]int64(nil), r.list...) }
