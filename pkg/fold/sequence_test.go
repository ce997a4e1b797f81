package fold

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSequence_TellsNewNumbersFromRepeats(t *testing.T) {
	for name, c := range map[string]struct {
		seqs []int64
		want string // r: repeat, b: backwards, g: gap, a dot: none of these
	}{
		"one after the other":        {[]int64{0, 1, 2}, "..."},
		"a request sent again":       {[]int64{0, 1, 2, 0, 1, 2, 3}, "...rrr."},
		"one too late, and again":    {[]int64{0, 2, 1, 1, 3}, ".gbr."},
		"it begins too high":         {[]int64{3, 1, 3, 0}, "gbrb"},
		"in the middle of a gap":     {[]int64{0, 9, 4, 4, 3, 5, 9, 0}, ".gbrbbrr"},
		"without a number":           {[]int64{-1, 0, -1, 1}, "...."},
		"falling from the beginning": {[]int64{2, 1, 0}, "gbb"},
	} {
		t.Run(name, func(t *testing.T) {
			s, got := NewSequence(), ""
			for _, seq := range c.seqs {
				got += told(&s, seq)
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func told(s *Sequence, seq int64) string {
	switch {
	case !Behind(seq, s.Next):
		if s.Take(seq) {
			return "g"
		}
		return "."
	case s.Drop(seq) == AnomalyRepeat:
		return "r"
	default:
		return "b"
	}
}

// Whatever numbers come: no new one is taken for a repeat, and while little is missing no repeat for a new one. What is written of it is
// small, and goes on as what it was written of.
func TestSequence_TakesNoNewNumberForARepeat(t *testing.T) {
	const most = 400
	beyond, within := 0, 0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s, seen, next, crowded := NewSequence(), map[int64]bool{}, int64(0), false
		for range 200 {
			seq := next
			switch rng.IntN(6) {
			case 0:
				seq = rng.Int64N(most)
			case 1:
				seq += rng.Int64N(1 + rng.Int64N(20))
			}
			behind, before := Behind(seq, s.Next), slices.Clone(s.Missing)
			got := told(&s, seq)
			switch {
			case !behind:
				if (got == "g") != (seq > next) {
					t.Fatalf("seed %d: %d behind %d is %s", seed, seq, next, got)
				}
				next = seq + 1
			case !seen[seq]:
				if got != "b" {
					t.Fatalf("seed %d: new number %d is %s with %v missing", seed, seq, got, before)
				}
			case got != "r" && !crowded:
				t.Fatalf("seed %d: repeat of %d is %s with %v missing", seed, seq, got, before)
			case got != "r":
				beyond++
			default:
				within++
			}
			seen[seq] = true
			crowded = crowded || len(s.Missing) == maxMissing
			for i, r := range s.Missing {
				if r[0] >= r[1] || r[1] > s.Next || i > 0 && r[0] <= s.Missing[i-1][1] || len(s.Missing) > maxMissing {
					t.Fatalf("seed %d: missing %v of %d", seed, s.Missing, s.Next)
				}
			}
			text, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			s = Sequence{}
			if err := json.Unmarshal(text, &s); err != nil {
				t.Fatal(err)
			}
		}
	}
	if beyond == 0 || within < beyond {
		t.Errorf("%d repeats were told, %d taken for new", within, beyond)
	}
}
