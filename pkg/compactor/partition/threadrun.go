package partition

import (
	"github.com/skeinhq/skein/pkg/compactor/runstore"
)

// threadRun is a run as its thread knows it: its metadata, and the run itself while it is in memory.
type threadRun struct {
	runstore.Metadata
	live *run
}

// endedBefore reports whether the run's terminal event lies below the offset.
func (h *threadRun) endedBefore(offset int64) bool { return h.Sealed && h.Next <= offset }

// threadRunsOf returns runs that are not in memory.
func threadRunsOf(runs []*runstore.Metadata) []*threadRun {
	out := make([]*threadRun, len(runs))
	for i, m := range runs {
		out[i] = &threadRun{Metadata: *m}
	}
	return out
}
