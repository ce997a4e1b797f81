package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/recordings"
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

func canonical(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
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
	if _, stderr, _ := skein(t, "", "fold", "--records", path); !strings.Contains(stderr, "bad.jsonl:3: left out: malformed") {
		t.Errorf("--records does not say what is left out: %s", stderr)
	}
	if _, stderr, _ := skein(t, "", "fold", "--quiet", path); stderr != "" {
		t.Errorf("--quiet still says: %s", stderr)
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
		"no data":     {": ping\n", "line 1 looks like SSE, but no line has data"},
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

// runsOf is what the run records of files say of their runs.
func runsOf(t *testing.T, paths ...string) []string {
	t.Helper()
	stdout, stderr, code := skein(t, "", append([]string{"fold", "--records"}, paths...)...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(stdout), "\n") {
		r, err := record.DecodeRun([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.Join([]string{r.ThreadID, r.RunID, cmp.Or(r.ParentRunID, "-")}, " "))
	}
	return got
}

// Names of members are read as the stages read them: as they are written, unescaped, and the last of several.
func TestFold_ReadsMembersAsTheStagesDo(t *testing.T) {
	const end = `{"type":"RUN_FINISHED","threadId":"t","runId":"r1"}`
	for name, c := range map[string]struct{ events, want string }{
		"other case of a type":     {eventStart + `{"type":"CUSTOM","name":"x","value":1,"TYPE":"RUN_STARTED"}` + eventEnd, "t r -"},
		"other case of ids":        {`{"type":"RUN_STARTED","threadId":"t","runId":"r","ThreadID":"T","RunID":"R","parentRunID":"P"}`, "t r -"},
		"a repeated type":          {eventStart + eventEnd + `{"type":7,"type":"RUN_STARTED","threadId":"t","runId":"r1"}` + end, "t r -, t r1 r"},
		"a repeated type, undone":  {eventStart + `{"type":"RUN_STARTED","type":"CUSTOM","name":"x","value":1}` + eventEnd, "t r -"},
		"repeated ids":             {`{"type":"RUN_STARTED","threadId":7,"runId":"R","threadId":"t","runId":"r"}`, "t r -"},
		"escaped names":            {eventStart + eventEnd + `{"typ\u0065":"RUN_STARTE\u0044","thread\u0049d":"t","runI\u0064":"r1"}` + end, "t r -, t r1 r"},
		"an input of another case": {`{"type":"RUN_STARTED","runId":"r","input":{"messages":[],"threadId":"t","ThreadID":"T","parentRunID":"P"}}`, "t r -"},
		"a repeated input": {
			`{"type":"RUN_STARTED","runId":"r","input":{"messages":[],"threadId":"T"},"input":{"messages":[],"thread\u0049d":"T","threadId":"t"}}`, "t r -"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runsOf(t, writeFile(t, "run.jsonl", strings.ReplaceAll(c.events, "}{", "}\n{")))
			if got := strings.Join(got, ", "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	beside := writeFile(t, "run.jsonl", eventText)
	input := byteOrderMark + `{"threadId":"t","runId":"R","run\u0049d":"r","RunID":"R","messages":[]}` + "\r\n"
	if err := os.WriteFile(strings.TrimSuffix(beside, ".jsonl")+".input.json", []byte(input), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(runsOf(t, beside), ", "); got != "t r -" {
		t.Errorf("an input beside the file: got %q", got)
	}
}

// A run has the ids of its first event that names them, and its input's where none does.
func TestFold_NamesRunsByTheirEvents(t *testing.T) {
	const badStart = `{"type":"RUN_STARTED","threadId":"x","runId":"x","parentRunId":7}`
	for name, c := range map[string]struct{ events, want string }{
		"no start":                    {eventText + eventEnd, "t r -"},
		"no thread on the start":      {`{"type":"RUN_STARTED","runId":"r"}` + `{"type":"RUN_FINISHED","threadId":"t","runId":"r1"}`, "t r -"},
		"an id that can be none":      {`{"type":"RUN_STARTED","threadId":"","runId":".."}` + eventEnd, "t r -"},
		"behind the end":              {eventText + `{"type":"RUN_ERROR","message":"x"}` + eventEnd, "thread run-1 -"},
		"a start that is malformed":   {badStart + eventEnd, "t r -"},
		"a second one":                {eventStart + eventEnd + badStart + eventText + `{"type":"RUN_FINISHED","threadId":"t","runId":"r2"}`, "t r -, t r2 r"},
		"a line before the start":     {`nonsense` + "\n" + eventStart + eventEnd, "t r -"},
		"a start that is cut, before": {`{"type":"RUN_STARTED","threadId":"x","runId":` + "\n" + `7}` + eventStart + eventEnd, "t r -"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runsOf(t, writeFile(t, "run.jsonl", strings.ReplaceAll(c.events, "}{", "}\n{")))
			if got := strings.Join(got, ", "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
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
