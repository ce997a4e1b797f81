package fold

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
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

// Records from before new numbers were told from repeats count both as repeats, wholly or up to where they were written.
func TestAsCounted(t *testing.T) {
	const r, b = AnomalyRepeat, AnomalyBackwards
	for name, c := range map[string]struct{ made, given, want map[string]int64 }{
		"as by now":                {map[string]int64{r: 1, b: 2}, map[string]int64{r: 1, b: 2}, map[string]int64{r: 1, b: 2}},
		"all are repeats":          {map[string]int64{r: 1, b: 2}, map[string]int64{r: 3}, map[string]int64{r: 3}},
		"some are":                 {map[string]int64{b: 2}, map[string]int64{r: 1, b: 1}, map[string]int64{r: 1, b: 1}},
		"one is missing":           {map[string]int64{r: 1, b: 2}, map[string]int64{r: 2}, map[string]int64{r: 1, b: 2}},
		"more are new than can be": {map[string]int64{r: 2}, map[string]int64{r: 1, b: 1}, map[string]int64{r: 2}},
		"none":                     {nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			of := func(version int, counted map[string]int64) *record.Run {
				return &record.Run{FoldVersion: version, Stats: record.Stats{Anomalies: counted}}
			}
			made := of(1, maps.Clone(c.made))
			got, _ := json.Marshal(asCounted(of(1, c.given), made).Stats.Anomalies)
			if want, _ := json.Marshal(c.want); string(got) != string(want) {
				t.Errorf("got %s, want %s", got, want)
			}
			if !maps.Equal(made.Stats.Anomalies, c.made) {
				t.Errorf("what was made is %v by now", made.Stats.Anomalies)
			}
			if is := asCounted(of(2, c.given), made); is != made {
				t.Errorf("by rules of version 2: %v", is.Stats.Anomalies)
			}
		})
	}
}
