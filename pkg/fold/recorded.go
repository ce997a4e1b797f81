package fold

import (
	"cmp"
	"slices"

	"github.com/skeinhq/skein/pkg/record"
)

// Span is the stretch of a run in its thread's partition.
type Span struct {
	RunID string
	// ClientRunID is the client run id.
	ClientRunID string
	// First is the offset of the run's first record, Next the one after its last.
	First, Next int64
	// Sealed: no record at Next or behind is the run's.
	Sealed bool
}

// SpanOf returns the span of a record's run.
func SpanOf(r *record.Run) Span {
	return Span{RunID: r.RunID, ClientRunID: cmp.Or(r.ClientRunID, r.RunID), First: r.Raw.First, Next: r.Raw.Next, Sealed: Final(r)}
}

// Recorded finds the runs of a thread's raw records by the runs' records.
type Recorded struct {
	byStart  []Span
	byClient map[string][]Span // by start
}

// NewRecorded returns the runs of these records.
func NewRecorded(records []*record.Run) *Recorded {
	t := &Recorded{byStart: make([]Span, len(records)), byClient: make(map[string][]Span, len(records))}
	for i, r := range records {
		t.byStart[i] = SpanOf(r)
	}
	slices.SortFunc(t.byStart, func(a, b Span) int { return cmp.Compare(a.First, b.First) })
	for _, s := range t.byStart {
		t.byClient[s.ClientRunID] = append(t.byClient[s.ClientRunID], s)
	}
	return t
}

// Of returns the run of a raw record. A record with a client run id belongs to the last run with that id which started at or
// before its offset; one without to the last run that started at or before the offset and had not ended before it.
func (t *Recorded) Of(d *Decoded) (Span, bool) {
	id, list := d.ClientRunID(), t.byStart
	if id != "" {
		list = t.byClient[id]
	}
	n, _ := slices.BinarySearchFunc(list, d.Offset+1, func(s Span, at int64) int { return cmp.Compare(s.First, at) })
	for i := n - 1; i >= 0; i-- {
		if id != "" || !list[i].Sealed || list[i].Next > d.Offset {
			return list[i], true
		}
	}
	return Span{}, false
}

// Steady reports whether all of a run's events were folded by its record, so that the outcome of none depends on those before it.
func Steady(r *record.Run) bool {
	return r.Stats.Anomalies[AnomalyRepeat] == 0 && r.Stats.Anomalies[AnomalyBackwards] == 0 && r.Stats.Anomalies[AnomalyMalformed] == 0
}
