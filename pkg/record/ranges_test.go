package record

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Above MaxRanges the largest gaps stay, the later of equal ones, however far apart a run's events lie.
func TestRanges_KeepTheLargestGaps(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		spread := 1 + rng.Int64N(60) // 1: all gaps are equal
		var r Ranges
		var offsets []int64
		for at := int64(0); len(offsets) < 400; at += 2 + rng.Int64N(spread) {
			offsets = append(offsets, at)
			r.Add(at)
			if rng.IntN(50) == 0 { // as after a restart
				r = NewRanges(r.List())
			}
			if got, want := r.List(), rangesOf(offsets); !slices.Equal(got, want) {
				t.Fatalf("seed %d, %d offsets: got %v, want %v", seed, len(offsets), got, want)
			}
		}
	}
}

// rangesOf works out from all offsets what ranges keep.
func rangesOf(offsets []int64) [][2]int64 {
	type gap struct {
		at   int
		size int64
	}
	var gaps []gap
	for i := 1; i < len(offsets); i++ {
		gaps = append(gaps, gap{i, offsets[i] - offsets[i-1] - 1})
	}
	slices.SortStableFunc(gaps, func(a, b gap) int { // the largest first, of equal ones the latest
		if a.size != b.size {
			return int(b.size - a.size)
		}
		return b.at - a.at
	})
	gaps = gaps[:min(len(gaps), MaxRanges-1)]
	slices.SortFunc(gaps, func(a, b gap) int { return a.at - b.at })
	out := [][2]int64{{offsets[0], 0}}
	for _, g := range gaps {
		out[len(out)-1][1] = offsets[g.at-1] + 1
		out = append(out, [2]int64{offsets[g.at], 0})
	}
	out[len(out)-1][1] = offsets[len(offsets)-1] + 1
	return out
}
