package conformance_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
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
			want, err := conformance.Expected(thread)
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
				events := jsonLines(skeinFold(t, thread.Runs[:i+1], "--events"))
				played := live.Play(t, conformance.Job{Events: events, Schema: true, Verify: true})[0]
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

// command runs "skein" on files of testdata/command.
func command(t *testing.T, args ...string) []byte {
	t.Helper()
	for i, arg := range args {
		if strings.HasSuffix(arg, ".jsonl") {
			args[i] = filepath.Join("testdata", "command", arg)
		}
	}
	var stdout, stderr bytes.Buffer
	if err := cli.Run(t.Context(), args, nil, &stdout, &stderr); err != nil || stderr.Len() > 0 {
		t.Fatalf("skein %q: %v\n%s", args, err, stderr.String())
	}
	return stdout.Bytes()
}

func decodeFile(t *testing.T, name string, v any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "command", name))
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A file is read as it is meant: with a byte order mark, and laid out over lines.
func TestCommand_FoldReadsFilesAsTheyAreMeant(t *testing.T) {
	var want map[string]conformance.Conversation
	decodeFile(t, "want.json", &want)
	if len(want) == 0 {
		t.Fatal("want.json holds nothing")
	}
	for name, want := range want {
		var got conformance.Conversation
		if err := json.Unmarshal(command(t, "fold", name+".jsonl"), &got); err != nil {
			t.Fatal(err)
		}
		if d := conformance.Diff(want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// A run without RUN_STARTED has the ids that its RUN_FINISHED names, so that a later run finds it as its parent.
func TestCommand_FoldNamesARunByTheEventThatHasItsIDs(t *testing.T) {
	type place struct {
		ThreadID    string  `json:"threadId"`
		RunID       string  `json:"runId"`
		ParentRunID *string `json:"parentRunId"`
		ParentBy    string  `json:"parentBy"`
		SpawnedBy   *string `json:"spawnedBy"`
		RootRunID   string  `json:"rootRunId"`
		Depth       int     `json:"depth"`
	}
	var got, want []place
	decodeFile(t, "want-records.json", &want)
	for line := range bytes.Lines(command(t, "fold", "--records", "no-start.jsonl", "second.jsonl")) {
		var p place
		if err := json.Unmarshal(line, &p); err != nil {
			t.Fatal(err)
		}
		got = append(got, p)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
