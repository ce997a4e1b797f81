package fold

import (
	"encoding/json"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// LineageOf returns a run record's lineage without its HistoryKey and Rewrote. The run starts at its first raw record,
// which may be an input or an event. The run is sealed if the record is Final.
func LineageOf(r *record.Run) lineage.Run {
	out := lineage.Run{
		ID: r.RunID, ClientID: r.ClientRunID, Parent: r.ParentRunID, ParentBy: lineage.ParentBy(r.ParentBy), SpawnedBy: r.SpawnedBy,
		Spawned: r.Spawned, Branch: r.BranchID, Root: r.RootRunID, Depth: r.Depth, Base: r.Base, HasInput: r.HasWholeInput(),
		Start: r.Raw.First, End: -1, Sealed: Final(r), Status: lineage.Status(r.Status), StartedAt: r.StartedAt, MessageCount: r.MessageCount,
		Synthetic: r.Synthetic, Truncated: r.Truncated, RawLost: r.RawLost,
	}
	if r.Status != record.StatusRunning {
		out.End = r.Raw.Next - 1
	}
	switch {
	case r.LateError != nil: // what a resume names stays as it was at the run's end
		out.Interrupts = InterruptIDs(r.LateError.Interrupts)
	case r.Status == record.StatusInterrupted:
		out.Interrupts = InterruptIDs(r.Interrupts)
	}
	return out
}

// maxInterruptBytes bounds the ids of interrupts by which a run is found, as memory has them for all runs of a thread.
const maxInterruptBytes = 2 << 10

// InterruptIDs returns the ids of interrupts, without those that exceed maxInterruptBytes together with the ids before them.
func InterruptIDs(interrupts []json.RawMessage) (ids agui.Strings) {
	room := maxInterruptBytes
	for _, raw := range interrupts {
		if id := agui.Lookup(raw, "id"); agui.IsString(id) && len(id) <= room {
			ids = append(ids, agui.TextOf(id).String())
			room -= len(id)
		}
	}
	return ids
}

// RecordLineage converts a run's lineage to its form in records.
func RecordLineage(r lineage.Run) record.Lineage {
	return record.Lineage{
		ParentRunID: r.Parent, ParentBy: record.ParentBy(r.ParentBy), SpawnedBy: r.SpawnedBy,
		Spawned: r.Spawned, BranchID: r.Branch, RootRunID: r.Root, Depth: r.Depth,
	}
}

// Final reports whether no later raw record belongs to the run: a terminal event sealed it, it was closed, or it was
// truncated.
func Final(r *record.Run) bool { return r.Status.Sealed() || r.Closed || r.Truncated }
