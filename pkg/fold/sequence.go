package fold

import "slices"

// Sequence tracks the sequence numbers of a run's events (header seq; -1 is none). They must rise. An event whose
// number is not above all earlier ones is dropped, even if this number is new, because the event may not fit after
// those already folded. The two cases are counted separately: AnomalyRepeat loses nothing, AnomalyBackwards loses an
// event.
//
// The result depends only on the numbers, even if a fold resumes from a stored Sequence.
type Sequence struct {
	// Next is the highest number so far plus one; -1 before the first.
	Next int64
	// Missing are half-open, rising, disjoint ranges below Next that contain every missing number; at most maxMissing. If
	// more are needed, ranges are joined, and numbers that were seen between them count as missing, too.
	Missing [][2]int64
}

// maxMissing limits the ranges of missing numbers, because each checkpoint contains all of them.
const maxMissing = 16

// NewSequence returns a Sequence without numbers.
func NewSequence() Sequence { return Sequence{Next: -1} }

// Clone returns a copy that later calls do not change.
func (s Sequence) Clone() Sequence { return Sequence{s.Next, slices.Clone(s.Missing)} }

// Behind reports whether an event with number seq is dropped. next is the highest number so far plus one.
func Behind(seq, next int64) bool { return seq >= 0 && seq < next }

// Take adds the number of an event that is not dropped. It reports whether numbers before it are missing.
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

// join merges the two neighbouring ranges with the fewest numbers between them; of equal pairs the first.
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

// Drop adds the number of a dropped event and returns its anomaly.
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
	} // else the number stays in Missing and counts as new if it is repeated
	if len(s.Missing) == 0 {
		s.Missing = nil
	}
	return AnomalyBackwards
}
