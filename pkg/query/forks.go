package query

import (
	"slices"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// maxAlternatives is how many runs a fork names: those next to the one of this history, by start.
const maxAlternatives = 100

// fork is a run of a history's chain that has siblings: what a branch picker shows.
type fork struct {
	// RunID is the run on this history's chain. ParentRunID is its parent and that of its siblings; absent for a root.
	RunID       string `json:"runId"`
	ParentRunID string `json:"parentRunId,omitempty"`
	// Message is the index in the history of the first message that is the run's own; absent if it has none, or it is not known.
	Message *int `json:"message,omitempty"`
	// Index is the run's place among the Total siblings, itself included, by start.
	Index int `json:"index"`
	Total int `json:"total"`
	// Alternatives are the siblings, RunID included, from index From on.
	Alternatives []alternative `json:"alternatives"`
	From         int           `json:"from"`
}

// alternative is one of the siblings at a fork.
type alternative struct {
	RunID string `json:"runId"`
	// TipRunID is the latest run of this sibling and its descendants: the history to show when it is picked.
	TipRunID  string        `json:"tipRunId"`
	Status    record.Status `json:"status"`
	StartedAt time.Time     `json:"startedAt"`
}

// forksOf returns the forks of a run's chain, the root's first. Own gives the run that a message of the history is of, by its index.
func forksOf(graph *lineage.Graph, rows []store.Run, run string, messages []agui.Message, own map[string][]agui.Message) []fork {
	byID := make(map[string]store.Run, len(rows))
	for _, r := range rows {
		byID[r.RunID] = r
	}
	forks := []fork{}
	var tips map[string]string
	for _, id := range graph.Chain(run) {
		siblings := graph.Siblings(id)
		if len(siblings) == 0 {
			continue
		}
		if tips == nil { // once for all forks: there may be as many as runs
			tips = graph.Latest()
		}
		all := append(siblings, id)
		slices.SortFunc(all, func(a, b string) int { return compareRows(byID[a], byID[b]) })
		f := fork{RunID: id, ParentRunID: graph.Parent(id), Index: slices.Index(all, id), Total: len(all), Message: firstOf(own[id], messages)}
		f.From = max(0, min(f.Index-maxAlternatives/2, f.Total-maxAlternatives))
		for _, other := range all[f.From:min(f.From+maxAlternatives, f.Total)] {
			row := byID[other]
			f.Alternatives = append(f.Alternatives, alternative{RunID: other, TipRunID: tips[other], Status: row.Status, StartedAt: row.StartedAt})
		}
		forks = append(forks, f)
	}
	return forks
}

// firstOf returns the index of the first message of a history that is among a run's own.
func firstOf(own, messages []agui.Message) *int {
	ids := make(map[string]bool, len(own))
	for _, m := range own {
		ids[m.ID] = true
	}
	for i, m := range messages {
		if ids[m.ID] {
			return &i
		}
	}
	return nil
}
