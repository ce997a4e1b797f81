package verify

import (
	"cmp"

	"github.com/skeinhq/skein/pkg/record"
)

// Outcome is the result of folding a run again by the current rules.
type Outcome string

// The values of Outcome.
const (
	// Same: the raw events produce the same record.
	Same Outcome = "same"
	// Changes: the raw events produce another record.
	Changes Outcome = "changes"
	// Gone: raw events that the run needs were deleted.
	Gone Outcome = "gone"
	// Open: the run is open, or it expired with only an input. Its record will change anyway.
	Open Outcome = "open"
)

// Result is the result of folding one run again.
type Result struct {
	Tenant   string `json:"tenant"`
	ThreadID string `json:"threadId"`
	RunID    string `json:"runId"`
	// Position is the position of the run's first record in skein.events.
	Position record.Position `json:"position"`
	// FoldVersion is the version of the rules that made the record.
	FoldVersion int     `json:"foldVersion"`
	Outcome     Outcome `json:"outcome"`
	// Why describes what is missing if the outcome is Gone.
	Why string `json:"why,omitempty"`
	// Differences lists the members that change, each with the location of its first change.
	Differences []Difference `json:"differences"`
}

// FollowChanges makes each run start from what the raw events of its parent give under the current rules. Records
// made under other versions of the rules are then also compared in full. Call it before Take, then call Changes after
// the last record.
func (t *Thread) FollowChanges() { t.made = map[string]keyedHistory{} }

// Changes returns a Result for each wanted run, ordered by start. Call it after Take was called for all raw records. It
// takes the lineage from the records, because lineage is final.
func (t *Thread) Changes() ([]Result, error) {
	out := make([]Result, len(t.wanted))
	for i, p := range t.wanted {
		if err := t.compare(p); err != nil {
			return nil, err
		}
		rec := p.Rec
		r := Result{
			Tenant: rec.Tenant, ThreadID: rec.ThreadID, RunID: rec.RunID,
			Position:    record.Position{Partition: rec.Raw.Partition, Offset: rec.Raw.First},
			FoldVersion: rec.FoldVersion, Outcome: Same, Differences: []Difference{},
		}
		switch why := cmp.Or(p.Failed, p.unread); {
		case rec.Status == record.StatusRunning:
			r.Outcome = Open
		case rec.RawLost:
			r.Outcome, r.Why = Gone, "events were gone before they were folded"
		case why != "":
			r.Outcome, r.Why = Gone, why
		case rec.InputOnly():
			r.Outcome = Open
		case len(p.differ) > 0:
			r.Outcome, r.Differences = Changes, p.differ
		}
		out[i] = r
	}
	return out, nil
}
