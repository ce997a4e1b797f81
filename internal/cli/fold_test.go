package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// skein runs one command line without an environment.
func skein(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	err := run(t.Context(), args, nil, strings.NewReader(stdin), &out, &errs)
	app.Report(&errs, "skein", err)
	return out.String(), errs.String(), app.ExitCode(err)
}

// files writes a recorded thread the way a person has it on disk, and returns its event files.
func files(t *testing.T, thread recordings.Thread, sse bool) []string {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for i, r := range thread.Runs {
		name := filepath.Join(dir, thread.Name+"-t"+string(rune('1'+i)))
		events := r.Events
		if sse {
			events = r.SSE()
		}
		for path, data := range map[string][]byte{name + ".jsonl": events, name + ".input.json": r.Input} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		paths = append(paths, name+".jsonl")
	}
	return paths
}

// legacy is the one recording whose messages the client gives random ids.
const legacy = "pydantic-ai/thinking-legacy"

func TestFold_EqualsTheOfficialClientOnEveryRecordedThread(t *testing.T) {
	for _, thread := range recordings.All() {
		for _, sse := range []bool{false, true} {
			stdout, stderr, code := skein(t, "", append([]string{"fold"}, files(t, thread, sse)...)...)
			if code != 0 {
				t.Errorf("%s: exit %d: %s", thread, code, stderr)
				continue
			}
			var got, want struct{ Messages, State any }
			if err := json.Unmarshal([]byte(stdout), &got); err != nil {
				t.Fatalf("%s: %v", thread, err)
			}
			if err := json.Unmarshal(thread.Client, &want); err != nil {
				t.Fatal(err)
			}
			if thread.String() == legacy {
				maskIDs(got.Messages)
				maskIDs(want.Messages)
			}
			if g, w := canonical(t, got), canonical(t, want); g != w {
				t.Errorf("%s (SSE %v): got\n%s\nthe client has\n%s", thread, sse, g, w)
			}
		}
	}
}

func canonical(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func maskIDs(messages any) {
	list, _ := messages.([]any)
	for _, m := range list {
		if m, ok := m.(map[string]any); ok && m["role"] == "reasoning" {
			m["id"] = "masked"
		}
	}
}

// Without an artifact there is nothing that only --json would say.
func TestFold_IsJSONInAnyCase(t *testing.T) {
	path := writeFile(t, "run.jsonl", envelope)
	for _, form := range [][]string{nil, {"--records"}, {"--events"}} {
		args := append([]string{"fold", path}, form...)
		plain, _, _ := skein(t, "", args...)
		stdout, stderr, code := skein(t, "", append(args, "--json")...)
		if code != app.ExitDone || stdout != plain || stderr != "" {
			t.Errorf("%v: exit %d, %s %s, want %s", form, code, stdout, stderr, plain)
		}
	}
}

func TestFold_TakesManyRunsInOneFile(t *testing.T) {
	thread, ok := recordings.Find("pydantic-ai", "multiturn")
	if !ok {
		t.Fatal("the recording is gone")
	}
	var all []byte
	for _, r := range thread.Runs {
		all = append(all, r.Events...)
	}
	path := filepath.Join(t.TempDir(), "all.jsonl")
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := skein(t, "", "fold", path)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	// Without inputs, the user's messages are not there: the three answers are.
	var got folded
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Messages) != 3 {
		t.Errorf("%d messages, want the three answers: %s", len(got.Messages), stdout)
	}
}

func TestFold_SaysWhatItLeavesOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.jsonl")
	events := `{"type":"RUN_STARTED","threadId":"t","runId":"r"}
{"type":"TEXT_MESSAGE_START"}
nonsense
{"type":"RUN_FINISHED","threadId":"t","runId":"r"}
{"type":"CUSTOM","name":"late","value":1}
`
	if err := os.WriteFile(path, []byte(events), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := skein(t, "", "fold", path)
	if code != 0 || stdout != `{"messages":[],"state":{}}`+"\n" {
		t.Errorf("exit %d, %s", code, stdout)
	}
	for _, line := range []string{":2: left out", ":3: left out", ":5: left out"} {
		if !strings.Contains(stderr, line) {
			t.Errorf("stderr does not say %q: %s", line, stderr)
		}
	}
	if _, stderr, _ := skein(t, "", "fold", "--quiet", path); stderr != "" {
		t.Errorf("--quiet still says: %s", stderr)
	}
}

// What --events prints leaves the same conversation and state, which fold shows itself.
func TestFold_EventsRebuildTheConversation(t *testing.T) {
	for _, thread := range recordings.All() {
		if thread.String() == legacy {
			continue // ids are made anew in each fold
		}
		paths := files(t, thread, false)
		whole, stderr, code := skein(t, "", append([]string{"fold"}, paths...)...)
		if code != 0 {
			t.Fatalf("%s: %s", thread, stderr)
		}
		events, _, _ := skein(t, "", append([]string{"fold", "--events"}, paths...)...)
		path := filepath.Join(t.TempDir(), "compacted.jsonl")
		if err := os.WriteFile(path, []byte(events), 0o600); err != nil {
			t.Fatal(err)
		}
		twice, _, _ := skein(t, "", "fold", "--events", path)
		if twice != events {
			t.Errorf("%s: compacted twice\n%s\nonce\n%s", thread, twice, events)
		}
		if starts := strings.Count(events, `"RUN_STARTED"`); starts != len(thread.Runs) {
			t.Errorf("%s: %d of %d runs start in\n%s", thread, starts, len(thread.Runs), events)
		}
		again, stderr, code := skein(t, "", "fold", path)
		if code != 0 || stderr != "" || again != whole {
			t.Errorf("%s: exit %d %s\ngot  %s\nwant %s", thread, code, stderr, again, whole)
		}
	}
}

// The run records of --records are the compactor's; restored along their bases they say what fold
// itself says.
func TestFold_RecordsRestoreToTheSame(t *testing.T) {
	for _, thread := range recordings.All() {
		if thread.String() == legacy {
			continue // ids are made anew in each fold
		}
		paths := files(t, thread, false)
		whole, _, _ := skein(t, "", append([]string{"fold"}, paths...)...)
		stdout, stderr, code := skein(t, "", append([]string{"fold", "--records"}, paths...)...)
		if code != 0 || stderr != "" {
			t.Errorf("%s: exit %d: %s", thread, code, stderr)
			continue
		}
		contents := make(map[string]lineage.Content)
		last := ""
		for _, line := range strings.Split(strings.TrimSpace(stdout), "\n") {
			r, err := record.DecodeRun([]byte(line))
			if err != nil {
				t.Fatalf("%s: %v", thread, err)
			}
			contents[r.RunID] = lineage.Content{RunID: r.RunID, Base: r.Base, Messages: r.Messages, Layout: r.Layout, State: r.State}
			last = r.RunID
		}
		if len(contents) != len(thread.Runs) {
			t.Errorf("%s: %d records for %d runs", thread, len(contents), len(thread.Runs))
		}
		chain, err := lineage.BaseChain(last, func(run string) (string, bool) {
			c, ok := contents[run]
			return c.Base, ok
		})
		if err != nil {
			t.Fatalf("%s: %v", thread, err)
		}
		var steps []lineage.Content
		for _, run := range chain {
			steps = append(steps, contents[run])
		}
		h, err := lineage.Restore(steps...)
		if err != nil {
			t.Fatalf("%s: %v", thread, err)
		}
		var want any
		if err := json.Unmarshal([]byte(whole), &want); err != nil {
			t.Fatal(err)
		}
		var got any
		if err := json.Unmarshal([]byte(canonical(t, h)), &got); err != nil {
			t.Fatal(err)
		}
		if g, w := canonical(t, got), canonical(t, want); g != w {
			t.Errorf("%s: records restore to\n%s\nfold says\n%s", thread, g, w)
		}
	}
}

func TestFold_RecordsSayWhatIsLeftOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.jsonl")
	events := `{"type":"RUN_STARTED","threadId":"t","runId":"r"}
nonsense
{"type":"RUN_FINISHED","threadId":"t","runId":"r"}
`
	if err := os.WriteFile(path, []byte(events), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := skein(t, "", "fold", "--records", path)
	if code != 0 || strings.Count(stdout, "\n") != 1 || !strings.Contains(stderr, "bad.jsonl:2: left out: malformed") {
		t.Errorf("exit %d, %s, %s", code, stdout, stderr)
	}
}

func TestFold_KeepsTheFamiliesThatAreAskedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.jsonl")
	if err := os.WriteFile(path, []byte(`{"type":"RUN_STARTED","threadId":"t","runId":"r"}
{"type":"RAW","event":1}
{"type":"CUSTOM","name":"n","value":1}
{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for families, want := range map[string][2]string{"": {"CUSTOM", "RAW"}, "raw": {"RAW", "CUSTOM"}, "none": {"RUN_STARTED", "CUSTOM"}} {
		for _, form := range []string{"--records", "--events"} {
			args := []string{"fold", form, path}
			if families != "" {
				args = append(args, "--keep-events", families)
			}
			stdout, stderr, code := skein(t, "", args...)
			if code != 0 || !strings.Contains(stdout, `"type":"`+want[0]+`"`) || strings.Contains(stdout, `"type":"`+want[1]+`"`) {
				t.Errorf("%v: exit %d, %s%s; want %s and no %s", args, code, stdout, stderr, want[0], want[1])
			}
		}
	}
	_, stderr, code := skein(t, "", "fold", path, "--keep-events", "steps")
	if code != app.ExitUsage || !strings.Contains(stderr, "there are step, subagent, custom, meta, unknown, raw") {
		t.Errorf("an unknown family: exit %d, %s", code, stderr)
	}
}
