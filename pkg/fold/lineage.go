package fold

import (
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// LineageOf returns what package lineage needs of a run record, without its HistoryKey and Rewrote. The run's start is its first raw
// record, be it an input or an event; it is sealed where nothing behind the record is the run's (Final).
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

// RecordLineage is what a record says of where a run stands.
func RecordLineage(r lineage.Run) record.Lineage {
	return record.Lineage{
		ParentRunID: r.Parent, ParentBy: record.ParentBy(r.ParentBy), SpawnedBy: agui.String(r.SpawnedBy),
		BranchID: r.Branch, RootRunID: r.Root, Depth: r.Depth,
	}
}

// Final reports whether no raw record behind those of a record is its run's: it was sealed by a terminal event, closed, or cut.
func Final(r *record.Run) bool { return r.Status.Sealed() || r.Closed || r.Truncated }
