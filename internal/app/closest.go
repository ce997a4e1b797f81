package app

import (
	"maps"
	"slices"
)

// closest returns the known name with the smallest distance to name, or "" if all are too different.
func closest(name string, known map[string]bool) string {
	best, bestDistance := "", max(2, len(name)/3)+1
	for _, k := range slices.Sorted(maps.Keys(known)) {
		if d := distance(name, k); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance returns how many bytes must be inserted, deleted, changed or swapped with a neighbour to make b from a (optimal string
// alignment).
func distance(a, b string) int {
	var before, last []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(last[j]+1, row[j-1]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
