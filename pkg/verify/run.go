package verify

import (
	"cmp"

	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// run is a run that has a record and is folded again.
type run struct {
	*fold.Run
	rec  *record.Run
	from fold.Origin
	// first and next are the offsets of its first raw record, and after the last one that has come.
	first, next int64
}

func newRun(rec *record.Run) run {
	return run{Run: fold.NewRun(rec.ThreadID, rec.RunID, cmp.Or(rec.ClientRunID, rec.RunID)), rec: rec, first: -1, next: -1}
}

// make returns the record of the raw events so far, if the given one is right about lineage, and the history at its end.
func (r *run) make(given *record.Run) (*record.Run, lineage.History) {
	return r.Record(given, r.from, r.first, r.next)
}

// free drops what the fold holds.
func (r *run) free() { r.Fold, r.Input, r.from = nil, nil, fold.Origin{} }

func compareStart(a, b *record.Run) int { return cmp.Compare(a.Raw.First, b.Raw.First) }

func contentOf(rec *record.Run) lineage.Content {
	return lineage.Content{RunID: rec.RunID, Base: rec.Base, Messages: rec.Messages, Layout: rec.Layout, State: rec.State}
}
