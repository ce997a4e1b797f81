package query

import (
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// graphOf returns the graph of a thread's rows.
func graphOf(runs []store.Run) *lineage.Graph { return lineage.NewGraph(headsOf(runs)) }

func headsOf(runs []store.Run) []lineage.Run {
	heads := make([]lineage.Run, len(runs))
	for i, r := range runs {
		heads[i] = headOf(r)
	}
	return heads
}

// headOf is what lineage needs to know of a row.
func headOf(r store.Run) lineage.Run {
	end := r.Raw.Next - 1
	if r.Status == record.StatusRunning {
		end = -1
	}
	var rewrote []lineage.Rewrite
	for _, kind := range r.Rewrote {
		rewrote = append(rewrote, lineage.Rewrite(kind))
	}
	return lineage.Run{
		ID: r.RunID, GivenID: r.GivenRunID,
		Parent: r.ParentRunID, ParentBy: lineage.ParentBy(r.ParentBy), SpawnedBy: string(r.SpawnedBy),
		Branch: r.BranchID, Root: r.RootRunID, Depth: r.Depth, Base: r.Base,
		HasInput: r.HasWholeInput(), Rewrote: rewrote,
		Start: r.Raw.First, End: end,
		Sealed: r.Status.Sealed(), Status: lineage.Status(r.Status), StartedAt: r.StartedAt,
		MessageCount: r.MessageCount,
		Synthetic:    r.Synthetic, Truncated: r.Truncated, RawLost: r.RawLost,
	}
}
