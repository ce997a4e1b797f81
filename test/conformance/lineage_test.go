package conformance_test

import (
	"testing"

	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
)

// No framework puts parentRunId on the stream and the official client cannot send it, so in
// practice a run's parent is found by what its input repeats. The recorder knew the parents; here
// they are hidden, and the chains must be found all the same.
func TestPlace_FindsTheRecordedChainWithoutParentRunID(t *testing.T) {
	for _, recorded := range recordings.All() {
		t.Run(recorded.String(), func(t *testing.T) {
			thread, err := lineage.NewThread()
			if err != nil {
				t.Fatal(err)
			}
			for i, run := range recorded.Runs {
				input, err := agui.DecodeInput(run.Input, "")
				if err != nil {
					t.Fatal(err)
				}
				start := lineage.Start{RunID: run.RunID, Input: input, Offset: int64(10 * i)}
				place, err := thread.Place(start)
				if err != nil {
					t.Fatal(err)
				}
				placed := place.Run
				by := lineage.ParentContent
				if i == 0 {
					by = lineage.ParentNone
				}
				if placed.Parent != run.ParentRunID || placed.ParentBy != by {
					t.Errorf("%s: parent %q by %q, want %q by %q", run.RunID, placed.Parent, placed.ParentBy, run.ParentRunID, by)
				}
				if placed.Branch != recorded.Runs[0].RunID || placed.Depth != i {
					t.Errorf("%s: branch %q depth %d, want %q and %d", run.RunID, placed.Branch, placed.Depth, recorded.Runs[0].RunID, i)
				}

				history := foldRun(t, run).run.Messages()
				placed.End, placed.Sealed, placed.Status = start.Offset+9, true, lineage.StatusFinished
				placed.MessageCount, placed.HistoryKey = len(history), lineage.KeyOf(history)
				if err := thread.Add(placed); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
