package partition

import (
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
)

// threadRun is a run in its thread: its metadata, and the run itself while it is in memory.
type threadRun struct {
	fold.Metadata
	live *run
}

// threadRunsOf returns runs that are not in memory.
func threadRunsOf(runs []*fold.Metadata) []*threadRun {
	out := make([]*threadRun, len(runs))
	for i, m := range runs {
		out[i] = &threadRun{Metadata: *m}
	}
	return out
}

// close seals an expired run with the metadata of its last record, as for a process that loads it. If only an input has come, the record's
// preliminary resolution becomes final.
func (h *threadRun) close(last *record.Run) error {
	m, err := fold.MetadataOf(last)
	if err == nil {
		h.Metadata = *m
	}
	return err
}
