package store

import (
	"slices"
	"time"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
)

// Found builds the search result of a run from the record and the facts of the run.
func Found(r *record.Run, f Facts) search.Run {
	out := search.Run{
		ThreadID: r.ThreadID, RunID: r.RunID, ParentRunID: r.ParentRunID, BranchID: r.BranchID, Depth: r.Depth, Status: r.Status,
		Agent: r.Agent, Labels: r.Labels, StartedAt: r.StartedAt.UTC().Truncate(time.Millisecond),
		DurationMs: r.Stats.Duration, TimeToFirstTokenMs: r.Stats.TimeToFirstToken, Models: modelsOf(r),
		ToolCalls: r.Stats.ToolCalls, Interrupts: len(r.Interrupts), Messages: r.MessageCount,
		ErrorCode: f.ErrorCode, ErrorMessage: f.ErrorMessage, Stopped: f.CancelledBy == CancelledBySkein,
		Rewrote: r.Rewrote, Question: f.Question, Reply: f.Reply,
	}
	for _, u := range r.Stats.Usage {
		out.InputTokens = record.AddTokens(out.InputTokens, u.InputTokens)
		out.OutputTokens = record.AddTokens(out.OutputTokens, u.OutputTokens)
		out.Tokens = record.AddTokens(out.Tokens, u.Total())
	}
	if r.EndedAt != nil {
		end := r.EndedAt.UTC().Truncate(time.Millisecond)
		out.EndedAt = &end
	}
	return out
}

// modelsOf returns the models that a run's usage names, sorted.
func modelsOf(r *record.Run) []string {
	var models []string
	for _, u := range r.Stats.Usage {
		models = append(models, string(u.Model))
	}
	slices.Sort(models)
	return slices.Compact(models)
}
