package recordings_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/skeinhq/skein/internal/recordings"
)

func TestAll_IsWhole(t *testing.T) {
	threads, runs := map[string]bool{}, 0
	for _, thread := range recordings.All() {
		if threads[thread.ThreadID] {
			t.Errorf("%s: thread id %s is used twice", thread, thread.ThreadID)
		}
		threads[thread.ThreadID] = true
		if !json.Valid(thread.Client) {
			t.Errorf("%s: the client's result is not JSON", thread)
		}
		parent := ""
		for _, run := range thread.Runs {
			runs++
			if run.ThreadID != thread.ThreadID || run.RunID == "" || run.ParentRunID != parent {
				t.Errorf("%s: thread %q run %q parent %q, want a run of %q after %q",
					run.File, run.ThreadID, run.RunID, run.ParentRunID, thread.ThreadID, parent)
			}
			parent = run.RunID
			for i, line := range run.Lines() {
				var event struct{ Type string }
				if err := json.Unmarshal(line, &event); err != nil || event.Type == "" {
					t.Errorf("%s line %d is no event: %v", run.File, i+1, err)
				}
			}
			if n := bytes.Count(run.SSE(), []byte("\n\n")); n != len(run.Lines()) {
				t.Errorf("%s: %d SSE events of %d lines", run.File, n, len(run.Lines()))
			}
		}
	}
	if len(threads) != 46 || runs != 69 {
		t.Errorf("%d threads and %d runs, want 46 and 69", len(threads), runs)
	}
}
