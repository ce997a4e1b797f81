package conformance_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/cli"
	"github.com/skeinhq/skein/pkg/lint"
	"github.com/skeinhq/skein/pkg/record"
)

// A fixture is a file of the AG-UI specification's conformance corpus: a stream, and what a client that reads it has to do. Members that
// only a client's callbacks and requests can show are left out.
type fixture struct {
	Client json.RawMessage   `json:"client"` // the client is set to an older version
	Input  json.RawMessage   `json:"input"`
	Stream []json.RawMessage `json:"stream"`
	Expect struct {
		Outcome      string   `json:"outcome"` // completed, or failed: the client gives up
		RunError     any      `json:"runError"`
		Warnings     []string `json:"warnings"`
		NoWarnings   bool     `json:"noWarnings"`
		MessageCount *int     `json:"messageCount"`
		Messages     any      `json:"messages"` // a subset of each message
		State        any      `json:"state"`    // a subset
	} `json:"expect"`
}

// departures are the fixtures that Skein answers otherwise, and why. docs/ag-ui.md lists each.
var departures = map[string]string{
	"truncated-run-reported-as-completed": "lint warns that the run has no end",
	"unknown-part-in-message-list":        "content parts of an unknown type are kept",
}

// TestCorpus_IsFoldedAndLinted reads the corpus from the folders in AGUI_CORPUS, such as spec/1.1/conformance/streams in a clone of the
// AG-UI repository. It is not part of this repository. A client that gives up is an error of lint here, or a run that has not ended.
func TestCorpus_IsFoldedAndLinted(t *testing.T) {
	folders := filepath.SplitList(os.Getenv("AGUI_CORPUS"))
	if len(folders) == 0 {
		t.Skip("AGUI_CORPUS names no folder")
	}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.json"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no fixtures: %v", folder, err)
		}
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".json")
			t.Run(name, func(t *testing.T) {
				wrong := readFixture(t, file).play(t)
				if departures[name] != "" && wrong == nil {
					t.Error("this is no departure any more")
				} else if departures[name] == "" && wrong != nil {
					t.Error(wrong)
				}
			})
		}
	}
}

func readFixture(t *testing.T, file string) (f fixture) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	if err != nil || len(f.Stream) == 0 {
		t.Fatalf("%s: %v, %d events", file, err, len(f.Stream))
	}
	return f
}

// play returns what Skein does otherwise than the fixture expects.
func (f fixture) play(t *testing.T) error {
	t.Helper()
	name := filepath.Join(t.TempDir(), "stream")
	var lines []byte
	for _, e := range f.Stream {
		var line bytes.Buffer
		if err := json.Compact(&line, e); err != nil {
			t.Fatal(err)
		}
		lines = append(append(lines, line.Bytes()...), '\n')
	}
	err := os.WriteFile(name+".jsonl", lines, 0o600)
	if f.Input != nil && err == nil {
		err = os.WriteFile(name+".input.json", f.Input, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	var end map[string]any
	decodeLines(t, skein(t, "fold", name+".jsonl"), func(dec *json.Decoder) error { return dec.Decode(&end) })
	var failed, unended bool
	decodeLines(t, skein(t, "fold", "--records", name+".jsonl"), func(dec *json.Decoder) error {
		var rec record.Run
		err := dec.Decode(&rec)
		failed = failed || rec.Status == record.StatusError
		unended = rec.Status == record.StatusRunning
		return err
	})
	levels := map[lint.Level]int{}
	decodeLines(t, skein(t, "lint", "--json", name+".jsonl"), func(dec *json.Decoder) error {
		var f lint.Finding
		err := dec.Decode(&f)
		levels[f.Level]++
		return err
	})
	switch e := f.Expect; {
	case e.Outcome == "failed":
		if levels[lint.Error] == 0 && !unended {
			return fmt.Errorf("the client gives up, lint finds no error: %v", levels)
		}
		return nil
	case levels[lint.Error] > 0:
		return errors.New("the client reads it all, lint finds an error")
	case failed != (e.RunError != nil):
		return fmt.Errorf("a run failed: %t, want %v", failed, e.RunError)
	case e.NoWarnings && levels[lint.Warning] > 0:
		return errors.New("the client does not warn, lint does")
	case len(e.Warnings) > 0 && f.Client == nil && len(levels) == 0:
		return fmt.Errorf("the client warns of %q, lint finds nothing", e.Warnings)
	case e.MessageCount != nil && len(end["messages"].([]any)) != *e.MessageCount:
		return fmt.Errorf("%d messages, want %d", len(end["messages"].([]any)), *e.MessageCount)
	case e.Messages != nil && !contains(end["messages"], e.Messages):
		return fmt.Errorf("messages %v, want %v", end["messages"], e.Messages)
	case e.State != nil && !contains(end["state"], e.State):
		return fmt.Errorf("state %v, want %v", end["state"], e.State)
	}
	return nil
}

// contains reports whether a value has all members of another. Lists must be of the same length.
func contains(value, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		value, ok := value.(map[string]any)
		for name, w := range want {
			v, has := value[name]
			ok = ok && has && contains(v, w)
		}
		return ok
	case []any:
		value, ok := value.([]any)
		return ok && slices.EqualFunc(value, want, contains)
	default:
		return value == want
	}
}

// skein returns what a command prints. A command may find something to complain of.
func skein(t *testing.T, args ...string) []byte {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if err := cli.Run(t.Context(), args, nil, &stdout, &stderr); err != nil && app.ExitCode(err) != 4 {
		t.Fatalf("skein %q: %v\n%s", args, err, stderr.String())
	}
	return stdout.Bytes()
}

func decodeLines(t *testing.T, lines []byte, decode func(*json.Decoder) error) {
	t.Helper()
	for dec := json.NewDecoder(bytes.NewReader(lines)); dec.More(); {
		if err := decode(dec); err != nil {
			t.Fatal(err)
		}
	}
}
