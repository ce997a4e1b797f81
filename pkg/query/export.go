package query

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/artifact"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// exportAnswer is the answer with ?report=true: the artifact and a report of what it leaves out.
type exportAnswer struct {
	Artifact json.RawMessage  `json:"artifact"`
	Report   *artifact.Report `json:"report"`
}

// export returns the export artifact of the run in the path (by default the thread's tip). It refuses a run that the
// contract cannot express, with the rule's name.
func (c *call) export() (*answer, error) {
	startedAt, err := c.time("startedAt")
	if err != nil {
		return nil, err
	}
	withReport, err := c.flag("report")
	if err != nil {
		return nil, err
	}
	v, graph, h, err := c.restoreOrTip()
	if err != nil {
		return nil, err
	}
	run := artifact.Run{
		ThreadID: h.run.ThreadID, RunID: givenID(v.runs, h.run.RunID), ParentRunID: string(h.run.SpawnedBy),
		StartedAt: h.run.StartedAt, Messages: h.Messages, Basis: string(graph.Basis(h.run.RunID)),
		Truncated: h.badges.Truncated || h.badges.RawLost,
	}
	if h.run.ParentBy == record.ParentExplicit { // an artifact never has an inferred parent
		run.ParentRunID = givenID(v.runs, h.run.ParentRunID)
	}
	if h.run.EndedAt != nil {
		run.FinishedAt = *h.run.EndedAt
	}
	if h.run.Started != nil {
		if run.Started, err = agui.Decode(h.run.Started); err != nil {
			return nil, fmt.Errorf("%w: RUN_STARTED of run %q: %w", errBroken, h.run.RunID, err)
		}
	}
	if end := h.run.LastEnd(); end != nil && !h.run.Synthetic {
		if run.Terminal, err = agui.Decode(end); err != nil {
			return nil, fmt.Errorf("%w: terminal event of run %q: %w", errBroken, h.run.RunID, err)
		}
	}
	a, report, err := artifact.FromRun(run, startedAt)
	var refused *artifact.Error
	if errors.As(err, &refused) {
		return nil, &front.Problem{Status: http.StatusConflict, Detail: "the run cannot be exported: " + refused.Error(),
			Members: map[string]any{"rule": refused.Rule}}
	}
	if err != nil {
		return nil, err
	}
	encode := func() ([]byte, error) {
		body, err := a.Encode()
		if withReport && err == nil {
			body, err = marshal(exportAnswer{body, report})
		}
		return append(body, '\n'), err
	}
	return &answer{status: v.status, indexedTo: &v.indexedTo, remarks: remarks(graph, h), body: encode,
		bytes: answerBytes(h.Messages, h.State)}, nil
}

// givenID returns the id that the agent's platform uses for a run. It differs from the run's id if the agent used that
// id before.
func givenID(runs []store.Run, id string) string {
	for _, r := range runs {
		if r.RunID == id && r.ClientRunID != "" {
			return r.ClientRunID
		}
	}
	return id
}
