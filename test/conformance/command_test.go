package conformance_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/skeinhq/skein/internal/cli"
	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/test/conformance"
)

// skeinFold runs "skein fold" on the first runs of a recorded thread, as they lie on a disk.
func skeinFold(t *testing.T, runs []recordings.Run, flags ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	args := append([]string{"fold", "--quiet"}, flags...)
	for _, run := range runs {
		name := filepath.Join(dir, run.RunID)
		for path, data := range map[string][]byte{name + ".jsonl": run.Events, name + ".input.json": run.Input} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		args = append(args, name+".jsonl")
	}
	var stdout, stderr bytes.Buffer
	if err := cli.Run(t.Context(), args, nil, &stdout, &stderr); err != nil {
		t.Fatalf("skein %q: %v\n%s", args, err, stderr.String())
	}
	return stdout.Bytes()
}

// "skein fold" prints what the client holds after each recorded run, and "skein fold --events" what
// leaves it in a client that holds nothing. The client's verification lets those events pass.
func TestCommand_FoldEqualsTheOfficialClientOnEveryRecordedRun(t *testing.T) {
	live, ok := conformance.Live(t)
	for _, thread := range recordings.All() {
		t.Run(thread.String(), func(t *testing.T) {
			want, err := conformance.Reference(live, thread)
			if err != nil {
				t.Fatal(err)
			}
			for i, run := range thread.Runs {
				var got conformance.Conversation
				if err := json.Unmarshal(skeinFold(t, thread.Runs[:i+1]), &got); err != nil {
					t.Fatal(err)
				}
				if d := conformance.Diff(want[i].Conversation, mask(t, thread, got)); d != "" {
					t.Errorf("%s: skein fold: %s", run.RunID, d)
				}
				if !ok {
					continue
				}
				job := conformance.Job{Schema: true, Verify: true}
				for _, line := range bytes.Split(bytes.TrimSpace(skeinFold(t, thread.Runs[:i+1], "--events")), []byte("\n")) {
					job.Events = append(job.Events, line)
				}
				results, err := live.Reduce(job)
				if err != nil {
					t.Fatal(err)
				}
				played := results[0]
				if played.Error != nil || played.Violation != nil {
					t.Errorf("%s: skein fold --events: the client rejects it: %v %v", run.RunID, played.Error, played.Violation)
				}
				if d := conformance.Diff(want[i].Conversation, mask(t, thread, played.Conversation)); d != "" {
					t.Errorf("%s: skein fold --events, played: %s", run.RunID, d)
				}
			}
		})
	}
}
