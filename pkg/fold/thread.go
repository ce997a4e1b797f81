package fold

import (
	"cmp"
	"slices"

	"github.com/skeinhq/skein/pkg/record"
)

// Span is where a run lies in its thread's partition.
type Span struct {
	RunID string
	// Given is the id that the agent uses for the run.
	Given string
	// First is the offset of the run's first record, Next the one after its last.
	First, Next int64
	// Sealed: nothing at Next or behind is the run's.
	Sealed bool
}

// SpanOf takes it out of a record.
func SpanOf(r *record.Run) Span {
	s := Span{RunID: r.RunID, Given: r.GivenRunID, First: r.Raw.First, Next: r.Raw.Next, Sealed: Final(r)}
	if s.Given == "" {
		s.Given = s.RunID
	}
	return s
}

// Thread says which run of a thread a record belongs to.
type Thread struct {
	byStart []Span
	given   map[string][]Span // by start
}

// NewThread returns the thread of these runs.
func NewThread(runs []Span) *Thread {
	t := &Thread{byStart: slices.Clone(runs), given: make(map[string][]Span, len(runs))}
	slices.SortFunc(t.byStart, func(a, b Span) int { return cmp.Compare(a.First, b.First) })
	for _, s := range t.byStart {
		t.given[s.Given] = append(t.given[s.Given], s)
	}
	return t
}

// Of returns the run that the record at an offset belongs to. One that names a run, by the agent's id,
// belongs to the latest of that id which started at or before the offset; one that names none to the
// run with the greatest start at or before the offset that had not ended before it.
func (t *Thread) Of(named string, offset int64) (Span, bool) {
	list := t.byStart
	if named != "" {
		list = t.given[named]
	}
	n, _ := slices.BinarySearchFunc(list, offset+1, func(s Span, at int64) int { return cmp.Compare(s.First, at) })
	for i := n - 1; i >= 0; i-- {
		if named != "" || !list[i].Sealed || list[i].Next > offset {
			return list[i], true
		}
	}
	return Span{}, false
}
