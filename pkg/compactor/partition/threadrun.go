package partition

import (
	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// threadRun is a run as its thread knows it: its metadata, and the run itself while it is in memory.
type threadRun struct {
	runstore.Metadata
	live *run
}

// endedBefore reports whether the run's terminal event lies below the offset.
func (h *threadRun) endedBefore(offset int64) bool { return h.Sealed && h.Next <= offset }

// end notes that the run has ended at its last record, synthetic where not by an event of the agent.
func (h *threadRun) end(status lineage.Status, synthetic bool) {
	h.Status = status
	h.Sealed = record.Status(status).Sealed()
	h.Synthetic = synthetic
	h.End = h.Next - 1
}

// reactivate notes that a run goes on that was abandoned.
func (h *threadRun) reactivate() {
	h.Status, h.Sealed, h.Synthetic, h.End = lineage.StatusRunning, false, false, -1
}

// threadRunsOf returns runs that are not in memory.
func threadRunsOf(runs []*runstore.Metadata) []*threadRun {
	heads := make([]*threadRun, len(runs))
	for i, m := range runs {
		heads[i] = &threadRun{Metadata: *m}
	}
	return heads
}
