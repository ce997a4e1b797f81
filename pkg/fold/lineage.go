package fold

import (
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// LineageOf returns what package lineage needs of a run record, without its HistoryKey and Rewrote. The run's start is its first raw
// record, be it an input or an event. Final says whether it is sealed.
func LineageOf(r *record.Run) lineage.Run {
	out := lineage.Run{
		ID: r.RunID, ClientID: r.ClientRunID, Parent: r.ParentRunID, ParentBy: lineage.ParentBy(r.ParentBy), SpawnedBy: string(r.SpawnedBy),
		Branch: r.BranchID, Root: r.RootRunID, Depth: r.Depth, Base: r.Base, HasInput: r.HasWholeInput(),
		Start: r.Raw.First, End: -1, Sealed: Final(r), Status: lineage.Status(r.Status), StartedAt: r.StartedAt, MessageCount: r.MessageCount,
		Synthetic: r.Synthetic, Truncated: r.Truncated, RawLost: r.RawLost,
	}
	if r.Status != record.StatusRunning {
		out.End = r.Raw.Next - 1
	}
	return out
}

// RecordLineage returns a run's lineage as its record has it.
func RecordLineage(r lineage.Run) record.Lineage {
	return record.Lineage{
		ParentRunID: r.Parent, ParentBy: record.ParentBy(r.ParentBy), SpawnedBy: agui.String(r.SpawnedBy),
		BranchID: r.Branch, RootRunID: r.Root, Depth: r.Depth,
	}
}

// Final reports whether a record is the last of its run, as a terminal event sealed the run, or it was closed. No later raw record
// belongs to the run.
func Final(r *record.Run) bool { return r.Status.Sealed() || r.Closed || r.Truncated }
