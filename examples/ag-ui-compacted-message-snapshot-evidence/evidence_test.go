package evidence

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/artifact"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/schemas"
)

var update = flag.Bool("update", false, "write artifact.json and the tables of the README anew")

// capturedAt stands for the times that ADK's streams do not have.
var capturedAt = time.Date(2026, 9, 17, 12, 0, 0, 0, time.UTC)

// captured reads a response body as it came over the wire.
func captured(tb testing.TB, sse []byte) []artifact.Captured {
	tb.Helper()
	var events []artifact.Captured
	for block := range bytes.SplitSeq(sse, []byte("\n\n")) {
		if data, ok := bytes.CutPrefix(block, []byte("data: ")); ok {
			events = append(events, artifact.Captured{Raw: data})
		} else if len(block) > 0 {
			tb.Fatalf("%.60q is no SSE event of one line", block)
		}
	}
	return events
}

func TestArtifact_IsWhatTheCaptureGives(t *testing.T) {
	body, err := os.ReadFile("capture.sse")
	if err != nil {
		t.Fatal(err)
	}
	a, report, err := artifact.FromEnvelope(captured(t, body), capturedAt)
	if err != nil {
		t.Fatal(err)
	}
	got, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "artifact.json", append(got, '\n'))
	if report.Messages != 5 || report.Stripped["toolCalls"] != 1 || report.Events[agui.ToolCallArgs] == 0 {
		t.Errorf("report %+v", report)
	}

	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemas.ExportV1))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("export.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("export.json")
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(got))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		t.Error(err)
	}
}

// Where a capture gives an artifact, the run's record gives one of the same messages. Their order may
// differ: the official client, which a record follows, leaves a message in its place when a snapshot
// names it elsewhere. The table of the README says where.
func TestRecords_HaveTheMessagesOfCaptures(t *testing.T) {
	compared := 0
	eachRun(t, func(r recordings.Run, fold *compact.Run) {
		ofCapture, _, err := artifact.FromEnvelope(capture(r), capturedAt)
		if err != nil {
			return
		}
		ofRecord, _, err := artifact.FromRun(runOf(t, fold), capturedAt)
		if err != nil {
			t.Errorf("%s: %v", r.File, err)
			return
		}
		compared++
		if !slices.Equal(byID(ofCapture), byID(ofRecord)) {
			t.Errorf("%s: the capture gives\n%+v, the record\n%+v", r.File, ofCapture.Messages, ofRecord.Messages)
		}
	})
	if compared < 20 {
		t.Errorf("only %d runs were compared", compared)
	}
}

func byID(a *artifact.Artifact) []artifact.Message {
	return slices.SortedFunc(slices.Values(a.Messages), func(x, y artifact.Message) int { return strings.Compare(x.ID, y.ID) })
}

// eachRun folds every recorded run, in the order of its thread.
func eachRun(tb testing.TB, yield func(recordings.Run, *compact.Run)) {
	tb.Helper()
	for _, thread := range recordings.All() {
		var history lineage.History
		for _, r := range thread.Runs {
			in, err := agui.DecodeInput(r.Input)
			if err != nil {
				tb.Fatal(err)
			}
			start := lineage.StartHistory(history, in)
			fold := compact.New(start.Messages, start.State)
			for _, line := range r.Lines() {
				ev, err := agui.Decode(line)
				if err != nil {
					tb.Fatal(err)
				}
				if err := fold.Apply(ev); err != nil {
					tb.Fatal(err)
				}
			}
			history = lineage.History{Messages: fold.Messages(), State: fold.State()}
			yield(r, fold)
		}
	}
}

func capture(r recordings.Run) []artifact.Captured {
	var events []artifact.Captured
	for _, line := range r.Lines() {
		events = append(events, artifact.Captured{Raw: line})
	}
	return events
}

func runOf(tb testing.TB, fold *compact.Run) artifact.Run {
	tb.Helper()
	s := fold.Summary()
	started, err := agui.Decode(s.Started)
	if err != nil {
		tb.Fatal(err)
	}
	r := artifact.Run{ThreadID: started.ThreadID, RunID: started.RunID, Messages: fold.Messages()}
	if s.Terminal != nil {
		if r.Terminal, err = agui.Decode(s.Terminal); err != nil {
			tb.Fatal(err)
		}
	}
	return r
}

// tally is one framework's line.
type tally struct {
	runs, captures, records, parents int
	envelope, artifact               int // bytes of those that qualify as captures
}

// The tables of the README: which runs of which frameworks qualify, and why the others do not.
func TestReadme_HasTheTablesOfAllRecordings(t *testing.T) {
	frameworks := map[string]*tally{}
	var runs strings.Builder
	runs.WriteString("| run | capture | record |\n|---|---|---|\n")
	eachRun(t, func(r recordings.Run, fold *compact.Run) {
		name, _, _ := strings.Cut(r.File, "/")
		f := frameworks[name]
		if f == nil {
			f = &tally{}
			frameworks[name] = f
		}
		f.runs++
		a, _, ofCapture := artifact.FromEnvelope(capture(r), capturedAt)
		fromRecord, _, ofRecord := artifact.FromRun(runOf(t, fold), capturedAt)
		if ofCapture == nil {
			b, err := a.Encode()
			if err != nil {
				t.Fatal(err)
			}
			f.captures++
			f.envelope += len(r.Events)
			f.artifact += len(b)
			if a.ParentRunIDRef != "" {
				f.parents++
			}
		}
		if ofRecord == nil {
			f.records++
		}
		record := verdict(ofRecord)
		if ofCapture == nil && ofRecord == nil && !slices.Equal(a.Messages, fromRecord.Messages) {
			record += ", in another order"
		}
		fmt.Fprintf(&runs, "| %s | %s | %s |\n", r.File, verdict(ofCapture), record)
	})
	var table strings.Builder
	table.WriteString("| framework | runs | captures that qualify | with parentRunId on the stream | bytes of envelope and artifact | records that qualify |\n|---|---|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(frameworks)) {
		f := frameworks[name]
		sizes := "–"
		if f.captures > 0 {
			sizes = fmt.Sprintf("%d, %d (%d %%)", f.envelope, f.artifact, 100*f.artifact/f.envelope)
		}
		fmt.Fprintf(&table, "| %s | %d | %d | %d | %s | %d |\n", name, f.runs, f.captures, f.parents, sizes, f.records)
	}

	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := between(t, string(readme), "frameworks", table.String())
	golden(t, "README.md", []byte(between(t, text, "runs", runs.String())))
}

func verdict(err error) string {
	if err == nil {
		return "yes"
	}
	return "`" + string(artifact.RuleOf(err)) + "`"
}

// between puts content between the markers of that name.
func between(tb testing.TB, text, name, content string) string {
	tb.Helper()
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
	before, rest, ok := strings.Cut(text, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		tb.Fatalf("the README has no markers of %s", name)
	}
	return before + begin + "\n" + content + "\n" + end + after
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is out of date; go test ./examples/... -update writes it. It would be:\n%s", path, got)
	}
}
