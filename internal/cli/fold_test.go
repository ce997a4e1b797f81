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

func canonical(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFold_SaysWhatItLeavesOut(t *testing.T) {
	path := writeFile(t, "bad.jsonl", `{"type":"RUN_STARTED","threadId":"t","runId":"r"}
{"type":"TEXT_MESSAGE_START"}
nonsense
{"type":"RUN_FINISHED","threadId":"t","runId":"r"}
{"type":"CUSTOM","name":"late","value":1}
`)
	stdout, stderr, code := skein(t, "", "fold", path)
	if code != 0 || stdout != `{"messages":[],"state":{}}`+"\n" {
		t.Errorf("exit %d, %s", code, stdout)
	}
	for _, line := range []string{":2: left out", ":3: left out", ":5: left out"} {
		if !strings.Contains(stderr, line) {
			t.Errorf("stderr does not say %q: %s", line, stderr)
		}
	}
	if _, stderr, _ := skein(t, "", "fold", "--records", path); !strings.Contains(stderr, "bad.jsonl:3: left out: malformed") {
		t.Errorf("--records does not say what is left out: %s", stderr)
	}
	if _, stderr, _ := skein(t, "", "fold", "--quiet", path); stderr != "" {
		t.Errorf("--quiet still says: %s", stderr)
	}
}

// A file is read as it is meant, or refused: it does not fold to nothing.
func TestFold_FailsWhereNothingInAFileIsAnEvent(t *testing.T) {
	good := writeFile(t, "good.jsonl", eventStart+"\n"+eventEnd)
	for name, c := range map[string]struct{ text, want string }{
		"lines":       {"\nnonsense\n{}\n", "line 2: not JSON: unexpected character at byte 1"},
		"other names": {`{"TYPE":"RUN_STARTED","threadId":"t","runId":"r"}`, "line 1: no type"},
		"schema":      {`{"type":"RUN_STARTED","thread_id":"t","run_id":"r"}`, "line 1: RUN_STARTED: runId is missing"},
		"over lines":  {"{\n\"event\": 1\n}\n", "line 1: no type"},
		"array":       {"[1]", "event 1 of the array: not a JSON object"},
		"SSE":         {"data: [DONE]\n\n", "line 1: not JSON: unexpected character at byte 2"},
		"no data":     {": ping\n", "line 1: the stream looks like SSE, but no line has data"},
		"UTF-16":      {"\xff\xfe{\x00}\x00", "line 1: not JSON: the text is not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, form := range []string{"--records=false", "--records", "--events"} {
				stdout, stderr, code := skein(t, "", "fold", form, good, writeFile(t, "bad.jsonl", c.text))
				if code != app.ExitFailed || stdout != "" || !strings.Contains(stderr, "bad.jsonl: ") || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
					t.Errorf("%s: exit %d, %s%s, want %q", form, code, stdout, stderr, c.want)
				}
			}
		})
	}
	for name, text := range map[string]string{"empty": "", "a mark": byteOrderMark, "lines": "\r\n \n", "array": "[]"} {
		stdout, stderr, code := skein(t, "", "fold", good, writeFile(t, "none.jsonl", text))
		if code != app.ExitDone || stdout == "" || !strings.Contains(stderr, "none.jsonl: no events") {
			t.Errorf("%s: exit %d, %s%s", name, code, stdout, stderr)
		}
	}
}

// The input beside a file is the run's, whatever lines stand before its events. An empty one is malformed.
func TestFold_TakesTheInputBesideForTheFirstRun(t *testing.T) {
	path := writeFile(t, "run.jsonl", "nonsense\n"+eventStart+"\n"+eventEnd)
	beside := strings.TrimSuffix(path, ".jsonl") + ".input.json"
	for input, want := range map[string]string{
		byteOrderMark + `{"messages":[{"id":"u","role":"user","content":"hi"}]}`: `{"messages":[{"id":"u","role":"user","content":"hi"}],"state":{}}`,
		"":                "reading input: not JSON",
		"\n":              "reading input: not JSON",
		`{"Messages":[]}`: "reading input: messages must be a list",
	} {
		if err := os.WriteFile(beside, []byte(input), 0o600); err != nil {
			t.Fatal(err)
		}
		stdout, stderr, code := skein(t, "", "fold", path)
		if code == app.ExitDone && strings.TrimSpace(stdout) != want || code != app.ExitDone && !strings.Contains(stderr, want) {
			t.Errorf("%q: exit %d, %s%s, want %s", input, code, stdout, stderr, want)
		}
	}
}
