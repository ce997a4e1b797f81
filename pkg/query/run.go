package query

import (
	"context"
	"encoding/json"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// runAnswer is everything about a run except its messages and state, which are in its history.
type runAnswer struct {
	ThreadID    string `json:"threadId"`
	RunID       string `json:"runId"`
	ClientRunID string `json:"clientRunId,omitempty"`

	record.Lineage
	// InputForm is "normalised" if the input left out messages that are in the parent's history.
	InputForm record.InputForm `json:"inputForm,omitempty"`
	// Rewrote lists how the input departs from the parent's history.
	Rewrote []string `json:"rewrote,omitempty"`

	Status record.Status `json:"status"`
	// Agent is the name of the run's producer, Labels are the run's labels. Each is absent if no record has it.
	Agent     string            `json:"agent,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	TraceID   string            `json:"traceId,omitempty"`
	StartedAt time.Time         `json:"startedAt"`
	EndedAt   *time.Time        `json:"endedAt,omitempty"`

	Started  json.RawMessage   `json:"started,omitempty"`
	Input    json.RawMessage   `json:"input,omitempty"`
	Events   []json.RawMessage `json:"events"`
	Terminal json.RawMessage   `json:"terminal,omitempty"`
	// LateError is the RUN_ERROR that came after Terminal; absent if none came.
	LateError *record.LateError `json:"lateError,omitempty"`
	// FirstMalformed is why the first malformed event was not folded; Stats.Anomalies counts them.
	FirstMalformed string `json:"firstMalformed,omitempty"`

	Interrupts       []json.RawMessage `json:"interrupts"`
	PendingToolCalls agui.Strings      `json:"pendingToolCalls"`
	Resumes          []json.RawMessage `json:"resumes"`

	MessageCount int          `json:"messageCount"`
	Stats        record.Stats `json:"stats"`
	Raw          record.Raw   `json:"raw"`
	InputSHA256  string       `json:"inputSha256,omitempty"`
	FoldVersion  int          `json:"foldVersion"`
	// Record is the position of the run's record in skein.runs.
	Record record.Position `json:"record"`

	badges
	IndexedTo record.Position `json:"indexedTo"`
}

// badges mark data that is incomplete or not certain.
type badges = client.Limits

func badgesOf(r store.Run) badges {
	return badges{
		Synthetic: r.Synthetic, Truncated: r.Truncated, RawLost: r.RawLost,
		ParentInferred: r.ParentBy == record.ParentContent || r.ParentBy == record.ParentLatest,
	}
}

func (c *call) run() (*answer, error) {
	c.one = true
	v, err := c.read(func(ctx context.Context, tenant, thread string) ([]store.Run, error) {
		r, err := c.store.Run(ctx, tenant, thread, c.runID)
		return []store.Run{r}, err
	})
	if err != nil {
		return nil, err
	}
	return &answer{status: v.status, body: document(newRunAnswer(v.runs[0], v.indexedTo))}, nil
}

func newRunAnswer(r store.Run, to record.Position) runAnswer {
	return runAnswer{
		ThreadID: r.ThreadID, RunID: r.RunID, ClientRunID: r.ClientRunID,
		Lineage: r.Lineage, InputForm: r.InputForm, Rewrote: r.Rewrote,
		Status: r.Status, Agent: r.Agent, Labels: r.Labels, TraceID: r.TraceID(), StartedAt: r.StartedAt, EndedAt: r.EndedAt,
		Started: r.Started, Input: r.Input, Events: list(r.Events), Terminal: r.Terminal, LateError: r.LateError,
		FirstMalformed: r.FirstMalformed,
		Interrupts:     list(r.Interrupts), PendingToolCalls: list(r.PendingToolCalls), Resumes: list(r.Resumes),
		MessageCount: r.MessageCount, Stats: r.Stats, Raw: r.Raw,
		InputSHA256: r.InputSHA256, FoldVersion: r.FoldVersion,
		Record: record.Position{Partition: r.Raw.Partition, Offset: r.Version},
		badges: badgesOf(r), IndexedTo: to,
	}
}

// list replaces a nil list by an empty one, so that JSON has [] and not null.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}
