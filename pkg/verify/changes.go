package verify

import (
	"cmp"

	"github.com/skeinhq/skein/pkg/record"
)

// Outcome is the outcome of folding a run again by the rules of this version.
type Outcome string

// The outcomes.
const (
	// Same: the raw events make the same record.
	Same Outcome = "same"
	// Changes: they make another record.
	Changes Outcome = "changes"
	// Gone: raw events that it needs are gone.
	Gone Outcome = "gone"
	// Open: the run is open, or expired with only an input, so its record will change anyway.
	Open Outcome = "open"
)

// Result is the result of folding one run again.
type Result struct {
	Tenant   string `json:"tenant"`
	ThreadID string `json:"threadId"`
	RunID    string `json:"runId"`
	// Position is that of the run's first record in skein.events.
	Position record.Position `json:"position"`
	// FoldVersion is the version of the rules that made the record.
	FoldVersion int     `json:"foldVersion"`
	Outcome     Outcome `json:"outcome"`
	// Why says what is gone.
	Why string `json:"why,omitempty"`
	// Differences are the members that change, each with the place of its first change.
	Differences []Difference `json:"differences"`
}

// FollowChanges makes each run start from what its parent's raw events make now, and has records that other versions of the rules made
// compared like those of this one. Call it before Take, and Changes after it.
func (t *Thread) FollowChanges() { t.made = map[string]keyedHistory{} }

// Changes returns which records the rules of this version would change, by the runs' starts, once all raw records were taken. Lineage is
// taken from the records, as it is final.
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
