package fold

import "slices"

// Sequence tracks the sequence numbers of a run's events (header seq, -1 is none). They have to rise: an event whose number is
// not above all before it is dropped, whether that number was seen or not, as it may not fit behind the events folded so
// far. The two cases are counted apart: AnomalyRepeat loses nothing, AnomalyBackwards an event.
//
// The result depends on the numbers alone, also if a fold resumes from a Sequence that was written.
type Sequence struct {
	// Next is the greatest number so far plus one; -1 before the first.
	Next int64
	// Missing are ranges below Next that hold every number which has not come: half-open, rising, disjoint, at most maxMissing. While there
	// are no more they hold no other; from then on numbers between two of them may be in, which count for new where they come again.
	Missing [][2]int64
}

// maxMissing bounds the ranges of missing numbers, as each checkpoint holds them all.
const maxMissing = 16

// NewSequence returns a Sequence without numbers.
func NewSequence() Sequence { return Sequence{Next: -1} }

// Clone returns a copy that later calls do not change.
func (s Sequence) Clone() Sequence { return Sequence{s.Next, slices.Clone(s.Missing)} }

// Behind reports whether an event with a number is dropped; next is the greatest number so far plus one.
func Behind(seq, next int64) bool { return seq >= 0 && seq < next }

// Take adds the number of an event that is not behind, and reports whether numbers before it are missing.
func (s *Sequence) Take(seq int64) (gap bool) {
	if seq < 0 {
		return false
	}
	from := max(s.Next, 0)
	s.Next = seq + 1
	if seq == from {
		return false
	}
	s.Missing = append(s.Missing, [2]int64{from, seq})
	if len(s.Missing) > maxMissing {
		s.join()
	}
	return true
}

// join makes one of the two ranges with the fewest numbers between them, the first of such.
func (s *Sequence) join() {
	at := 1
	for i := 2; i < len(s.Missing); i++ {
		if s.Missing[i][0]-s.Missing[i-1][1] < s.Missing[at][0]-s.Missing[at-1][1] {
			at = i
		}
	}
	s.Missing[at-1][1] = s.Missing[at][1]
	s.Missing = slices.Delete(s.Missing, at, at+1)
}

// Drop adds the number of an event that is behind, and returns its anomaly.
func (s *Sequence) Drop(seq int64) string {
	at := slices.IndexFunc(s.Missing, func(r [2]int64) bool { return r[0] <= seq && seq < r[1] })
	if at < 0 {
		return AnomalyRepeat
	}
	switch r := &s.Missing[at]; {
	case r[1]-r[0] == 1:
		s.Missing = slices.Delete(s.Missing, at, at+1)
	case seq == r[0]:
		r[0]++
	case seq == r[1]-1:
		r[1]--
	case len(s.Missing) < maxMissing:
		end := r[1]
		r[1] = seq
		s.Missing = slices.Insert(s.Missing, at+1, [2]int64{seq + 1, end})
	} // else it stays in, and counts for new where it comes again
	if len(s.Missing) == 0 {
		s.Missing = nil
	}
	return AnomalyBackwards
}
