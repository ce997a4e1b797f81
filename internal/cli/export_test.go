package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/artifact"
)

const envelope = `{"type":"RUN_STARTED","threadId":"t","runId":"r","timestamp":1776193200000}
{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","role":"assistant","delta":"hi"}
{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"m","role":"assistant","content":"hi"}]}
{"type":"RUN_FINISHED","threadId":"t","runId":"r"}
`

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExport_OfFilesNeedsNoServer(t *testing.T) {
	good := writeFile(t, "good.jsonl", envelope)
	timeless := writeFile(t, "timeless.jsonl", strings.ReplaceAll(envelope, `,"timestamp":1776193200000`, ""))
	for name, args := range map[string][]string{
		"capture":          {"export", "--capture", good},
		"capture and time": {"export", "--capture", timeless, "--started-at", "2026-04-14T19:00:00Z"},
		"fold":             {"fold", "--export", good},
		"fold and time":    {"fold", "--export", timeless, "--started-at", "2026-04-14T19:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, code := skein(t, "", args...)
			if code != app.ExitDone {
				t.Fatal(code, stderr)
			}
			a, err := artifact.Decode([]byte(stdout))
			if err != nil || a.StartedAt.Year() != 2026 || len(a.Messages) != 1 {
				t.Errorf("%v in %s", err, stdout)
			}
			if !strings.Contains(stderr, "text-messages-v1: 1 message") {
				t.Errorf("stderr %q", stderr)
			}
			file := writeFile(t, "artifact.json", stdout)
			stdout, _, code = skein(t, "", "export", "--check", file)
			if code != app.ExitDone || !strings.Contains(stdout, "an artifact of run r, 1 message, RUN_FINISHED") {
				t.Errorf("check: %d, %q", code, stdout)
			}
		})
	}
}

// The server's bytes are printed as they are, once they were read as a consumer would.
func TestExport_PrintsNothingThatIsNoArtifact(t *testing.T) {
	good, err := os.ReadFile("../../examples/ag-ui-compacted-message-snapshot-evidence/artifact.json")
	if err != nil {
		t.Fatal(err)
	}
	answer := func(artifact string) string {
		return answering(t, `{"report":{"projection":"text-messages-v1","messages":5,"startedAtFrom":"record","basis":"inferred"},"artifact":`+artifact+`}`)
	}
	stdout, stderr, code := skein(t, "", "export", "t", "r", "--url", answer(string(good)))
	if code != app.ExitDone || stdout != string(good) || stderr != "text-messages-v1: 5 messages; started_at from: record; basis: inferred (of a parent that was guessed)\n" {
		t.Errorf("exit %d, %s %s", code, stdout, stderr)
	}
	stdout, stderr, code = skein(t, "", "export", "t", "r", "--json", "--url", answer(strings.TrimSpace(string(good))))
	if code != app.ExitDone || !strings.HasPrefix(stdout, `{"report":{"projection"`) || stderr != "" {
		t.Errorf("--json: exit %d, %s %s", code, stdout, stderr)
	}
	newer := strings.Replace(string(good), "export.v1", "export.v2", 1)
	stdout, stderr, code = skein(t, "", "export", "t", "r", "--url", answer(newer))
	if code != app.ExitFailed || stdout != "" || !strings.Contains(stderr, "the server's answer is not an artifact: schema: ") {
		t.Errorf("a newer schema: exit %d, %s %s", code, stdout, stderr)
	}
}

// A fold leaves out what is no event, as the compactor does; a capture with such a line is no evidence.
func TestExport_OfACaptureRefusesWhatAFoldLeavesOut(t *testing.T) {
	path := writeFile(t, "broken.jsonl", strings.Replace(envelope, `{"type":"MESSAGES`, `{"type":"TEXT_MESSAGE_CONTENT"}`+"\n"+`{"type":"MESSAGES`, 1))
	if stdout, stderr, code := skein(t, "", "fold", "--export", path); code != app.ExitDone ||
		!strings.Contains(stderr, "broken.jsonl:3: left out: ") {
		t.Errorf("fold: exit %d, %s %s", code, stdout, stderr)
	}
	if stdout, stderr, code := skein(t, "", "export", "--capture", path); code != app.ExitFailed || stdout != "" ||
		!strings.Contains(stderr, "malformed-event") {
		t.Errorf("capture: exit %d, %s %s", code, stdout, stderr)
	}
}

// One file that cannot be read hides nothing of the others.
func TestExport_CheckGoesThroughAllFiles(t *testing.T) {
	const path = "../../examples/ag-ui-compacted-message-snapshot-evidence/artifact.json"
	stdout, stderr, code := skein(t, "{}", "export", "--check", "no-such-file", "-", path)
	if code != app.ExitFailed || !strings.Contains(stderr, "malformed: 1, not read: 1 of 3 files") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	for _, want := range []string{"no-such-file: not read: open no-such-file: no such file", "-: malformed: missing-field: ",
		path + ": an artifact of run "} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is not in %s", want, stdout)
		}
	}
}

func TestFold_ExportNamesTheParentOfTheInput(t *testing.T) {
	path := writeFile(t, "run.jsonl", envelope)
	input := `{"threadId":"t","runId":"r","parentRunId":"before","messages":[],"state":{},"tools":[],"context":[],"forwardedProps":{}}`
	if err := os.WriteFile(strings.TrimSuffix(path, ".jsonl")+".input.json", []byte(input), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := skein(t, "", "fold", "--export", path)
	a, err := artifact.Decode([]byte(stdout))
	if err != nil || code != app.ExitDone || a.ParentRunIDRef != "before" {
		t.Errorf("exit %d, %s, %v in %s", code, stderr, err, stdout)
	}
}
