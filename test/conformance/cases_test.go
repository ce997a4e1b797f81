package conformance_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/skeinhq/skein/test/conformance"
)

// A case is testdata/cases/NAME.txtar: a comment, in.jsonl, start.json where the conversation is not
// empty before, and want.json, which the official client wrote (-update). Where the whole client, which strips what its
// schema does not know, makes something else of it, that is whole.json.
type testCase struct {
	file    string
	archive *txtar.Archive
	start   conformance.Start
	events  []json.RawMessage
	want    caseResult
	whole   *caseResult
}

type caseResult struct {
	conformance.Conversation
	// Rejected are the places in in.jsonl of the events that the client gives up on.
	Rejected []int `json:"rejected,omitempty"`
}

func TestFold_EqualsTheOfficialClientOnCases(t *testing.T) {
	cases := readCases(t)
	if live, ok := conformance.Live(t); ok {
		results, stripped := reduceCases(t, live, cases, false), reduceCases(t, live, cases, true)
		for i := range cases {
			c := &cases[i]
			if *update {
				c.write(t, results[i], stripped[i])
			} else if d := c.want.diff(results[i]); d != "" {
				t.Errorf("%s: want.json against the running client: %s", c.file, d)
			}
			whole := &c.want
			if c.whole != nil {
				whole = c.whole
			}
			if d := whole.diff(stripped[i]); d != "" {
				t.Errorf("%s: the whole client is told to make something else: %s", c.file, d)
			}
		}
	} else if *update {
		t.Fatal("-update needs the official client")
	}
	for _, c := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(c.file), ".txtar"), func(t *testing.T) {
			report.cases++
			f := foldOf(t, c.start, c.events)
			if d := c.want.diff(caseResult{f.Conversation, f.malformed}); d != "" {
				t.Errorf("%s\n%s", bytes.TrimSpace(c.archive.Comment), d)
			}
		})
	}
}

// The rules that a case breaks are counted at the event at which the client's verification would end it.
func TestVerification_EqualsTheOfficialClientOnCases(t *testing.T) {
	live := conformance.Need(t)
	for _, c := range readCases(t) {
		job := conformance.Job{Start: c.start, Events: cut(c.events), Upgrade: true, Schema: true, Skip: true, Verify: true}
		if d := differs(live.Play(t, job)[0], foldOf(t, c.start, job.Events)); d != "" {
			t.Errorf("%s: %s", c.file, d)
		}
	}
}

// diff compares a result with one that is wanted.
func (r caseResult) diff(got caseResult) string {
	if d := conformance.Diff(r.Conversation, got.Conversation); d != "" {
		return d
	}
	if !slices.Equal(r.Rejected, got.Rejected) {
		return fmt.Sprintf("rejected events: want %v, got %v", r.Rejected, got.Rejected)
	}
	return ""
}

// reduceCases returns what the client makes of each case; stripped, what the whole client does.
func reduceCases(t *testing.T, live *conformance.Client, cases []testCase, stripped bool) []caseResult {
	t.Helper()
	jobs := make([]conformance.Job, len(cases))
	for i, c := range cases {
		jobs[i] = conformance.Job{Start: c.start, Events: c.events, Upgrade: true, Schema: true, Strip: stripped, Skip: true}
	}
	out := make([]caseResult, len(jobs))
	for i, r := range live.Play(t, jobs...) {
		out[i] = caseResult{r.Conversation, rejected(r)}
	}
	return out
}

// rejected returns the places of the events that the client was spared.
func rejected(r conformance.Result) []int {
	var at []int
	for _, s := range r.Skipped {
		at = append(at, s.Index)
	}
	slices.Sort(at)
	return at
}

func readCases(t *testing.T) []testCase {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "cases", "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d cases found: %v", len(files), err)
	}
	var cases []testCase
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		c := testCase{file: file, archive: archive}
		for _, f := range archive.Files {
			switch f.Name {
			case "start.json":
				err = json.Unmarshal(f.Data, &c.start)
			case "in.jsonl":
				c.events = jsonLines(f.Data)
			case "want.json":
				err = json.Unmarshal(f.Data, &c.want)
			case "whole.json":
				c.whole = &caseResult{}
				err = json.Unmarshal(f.Data, c.whole)
			default:
				t.Errorf("%s: there is no use for a file %s", file, f.Name)
			}
			if err != nil {
				t.Fatalf("%s: %s: %v", file, f.Name, err)
			}
		}
		cases = append(cases, c)
	}
	return cases
}

// write puts the results of the client into the case's files, and into the case.
func (c *testCase) write(t *testing.T, want, whole caseResult) {
	t.Helper()
	c.want, c.whole = want, nil
	c.archive.Files = slices.DeleteFunc(c.archive.Files, func(f txtar.File) bool { return f.Name == "want.json" || f.Name == "whole.json" })
	c.archive.Files = append(c.archive.Files, jsonFile(t, "want.json", want))
	if want.diff(whole) != "" {
		c.whole = &whole
		c.archive.Files = append(c.archive.Files, jsonFile(t, "whole.json", whole))
	}
	writeArchive(t, c.file, c.archive)
}

// jsonLines returns the lines of a file of events.
func jsonLines(file []byte) []json.RawMessage {
	return conformance.Raw(bytes.Split(bytes.TrimSpace(file), []byte("\n")))
}

func jsonFile(t *testing.T, name string, v any) txtar.File {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return txtar.File{Name: name, Data: b.Bytes()}
}

func writeArchive(t *testing.T, file string, a *txtar.Archive) {
	t.Helper()
	if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
		t.Fatal(err)
	}
}
