package compactor

import "math"

// maxRanges is how many sub-ranges of offsets a record names at most.
const maxRanges = 64

// ranges are half-open, rising, disjoint offset ranges.
type ranges [][2]int64

// add takes in the offset, which is not below any before it. Above maxRanges the smallest gap is
// closed, the earliest of equal ones, so that the result does not depend on how events were batched.
func (r ranges) add(offset int64) ranges {
	if n := len(r); n > 0 && offset <= r[n-1][1] {
		r[n-1][1] = max(r[n-1][1], offset+1)
		return r
	}
	r = append(r, [2]int64{offset, offset + 1})
	if len(r) <= maxRanges {
		return r
	}
	smallest, gap, end := 1, int64(math.MaxInt64), r[0][1]
	for i := 1; i < len(r); i++ {
		if g := r[i][0] - end; g < gap {
			smallest, gap = i, g
		}
		end = r[i][1]
	}
	r[smallest-1][1] = r[smallest][1]
	return append(r[:smallest], r[smallest+1:]...)
}

// clone returns a copy that later calls of add do not change.
func (r ranges) clone() [][2]int64 { return append([][2]int64(nil), r...) }
