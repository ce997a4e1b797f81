package verify

import (
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Records is a Source over the records of a thread in memory.
type Records struct {
	byRun map[string]*record.Run
	// holding lists, for each message id, the runs with an own message of that id. The first call of Holding fills it.
	holding map[string][]string
}

// NewRecords returns a Source of these records, which must be complete.
func NewRecords(runs []*record.Run) *Records {
	r := &Records{byRun: make(map[string]*record.Run, len(runs))}
	for _, rec := range runs {
		r.byRun[rec.RunID] = rec
	}
	return r
}

// Record implements Source.
func (r *Records) Record(run string) (*record.Run, error) { return r.byRun[run], nil }

// Holding implements Source.
func (r *Records) Holding(messageIDs []string) (runs []string, err error) {
	if r.holding == nil {
		r.holding = map[string][]string{}
		for run, rec := range r.byRun {
			if rec.Status == record.StatusRunning {
				continue
			}
			for _, m := range rec.Messages {
				r.holding[m.ID] = append(r.holding[m.ID], run)
			}
		}
	}
	for _, id := range messageIDs {
		runs = append(runs, r.holding[id]...)
	}
	return runs, nil
}

// History implements Source.
func (r *Records) History(run string) (lineage.History, error) {
	chain, err := lineage.BaseChain(run, func(id string) (string, bool) {
		rec, ok := r.byRun[id]
		if !ok {
			return "", false
		}
		return rec.Base, true
	})
	contents := make([]lineage.Content, len(chain))
	for i, id := range chain {
		contents[i] = fold.ContentOf(r.byRun[id])
	}
	at := lineage.History{}
	if err == nil {
		at, err = lineage.Restore(contents...)
	}
	if err != nil {
		return lineage.History{}, &fold.StartError{Reason: err.Error()}
	}
	return at, nil
}
