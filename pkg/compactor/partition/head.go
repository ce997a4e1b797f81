package partition

import (
	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// head is a run as its thread knows it: its metadata, and the run itself while it is in memory.
type head struct {
	runstore.Metadata
	live *run
}

// endedBefore reports whether the run's terminal event lies below the offset.
func (h *head) endedBefore(offset int64) bool { return h.Sealed && h.Next <= offset }

// end notes that the run has ended at its last record, synthetic where not by an event of the agent.
func (h *head) end(status lineage.Status, synthetic bool) {
	h.Status = status
	h.Sealed = record.Status(status).Sealed()
	h.Synthetic = synthetic
	h.End = h.Next - 1
}

// revive notes that a run goes on that was abandoned.
func (h *head) revive() {
	h.Status, h.Sealed, h.Synthetic, h.End = lineage.StatusRunning, false, false, -1
}

// headsOf returns runs that are not in memory.
func headsOf(runs []*runstore.Metadata) []*head {
	heads := make([]*head, len(runs))
	for i, m := range runs {
		heads[i] = &head{Metadata: *m}
	}
	return heads
}
