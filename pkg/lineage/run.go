package lineage

import (
	"time"

	"github.com/skeinhq/skein/pkg/agui"
)

// ParentBy is how a run's parent was found. The values are those of the run record.
type ParentBy string

// The ways in which a parent is found.
const (
	// ParentExplicit: the run or its input named a run of the same thread.
	ParentExplicit ParentBy = "explicit"
	// ParentContent: the input's messages continue that run's history, or its resume answers that run's interrupt.
	ParentContent ParentBy = "content"
	// ParentLatest: there was no input, or a normalised one (Normalised). The parent is the run of the thread that ended
	// last.
	ParentLatest ParentBy = "latest"
	// ParentNone: the run is a root.
	ParentNone ParentBy = "none"
)

// Inferred reports whether the parent was found by Skein, not named by the agent.
func (p ParentBy) Inferred() bool { return p == ParentContent || p == ParentLatest }

// Status is a run's status. The values are those of the run record.
type Status string

// The statuses of a run.
const (
	StatusRunning     Status = "running"
	StatusFinished    Status = "finished"
	StatusError       Status = "error"
	StatusInterrupted Status = "interrupted"
	StatusCancelled   Status = "cancelled"
	StatusAbandoned   Status = "abandoned"
)

// Run is a run's metadata: all that lineage needs of it.
type Run struct {
	// ID is unique in the thread. ClientID is the agent's id for the run if it differs, because the agent used the id of
	// a sealed run again.
	ID       string `json:"runId"`
	ClientID string `json:"clientRunId,omitempty"`

	// Place sets the following fields; they never change.
	Parent    string      `json:"parentRunId,omitempty"`
	ParentBy  ParentBy    `json:"parentBy"`
	SpawnedBy agui.String `json:"spawnedBy,omitempty"`
	// Spawned means that a run of this thread spawned the first run of the tree.
	Spawned bool   `json:"spawned,omitempty"`
	Branch  string `json:"branchId"`
	Root    string `json:"rootRunId"`
	Depth   int    `json:"depth"`
	Base    string `json:"base,omitempty"`
	// HasInput is true if the history starts from a whole input, not from the parent's history.
	HasInput bool `json:"hasInput,omitempty"`
	// Rewrote is how that input differs from the parent's history; see RewritesOf.
	Rewrote []Rewrite `json:"rewrote,omitempty"`

	// Start is the offset of the run's first record, an input or an event; in a result of Place, of its first event. End is the offset of
	// its last record once it has ended, -1 while it is open.
	Start int64 `json:"startOffset"`
	End   int64 `json:"endOffset"`
	// Sealed: the run has ended for good, by a terminal event or by Skein (closed); its history never changes again.
	Sealed    bool      `json:"sealed"`
	Status    Status    `json:"status"`
	StartedAt time.Time `json:"startedAt,omitzero"`

	// MessageCount and HistoryKey are of the current history; for a run that has ended, of its last.
	MessageCount int        `json:"messageCount"`
	HistoryKey   HistoryKey `json:"historyKey,omitzero"`
	// Interrupts are the ids of the interrupts with which the run ended.
	Interrupts agui.Strings `json:"interrupts,omitempty"`

	// Limits of what is known about the run; see draw.Badge.
	Synthetic bool `json:"synthetic,omitempty"`
	Truncated bool `json:"truncated,omitempty"`
	RawLost   bool `json:"rawLost,omitempty"`
}

// ClientRunID returns the id that the agent uses for the run.
func (r *Run) ClientRunID() string {
	if r.ClientID != "" {
		return r.ClientID
	}
	return r.ID
}

// Open reports whether the run has not ended.
func (r *Run) Open() bool { return r.End < 0 }
