package evidence

import (
	"bytes"
	"flag"
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

var update = flag.Bool("update", false, "write artifact.json")

// capturedAt stands for the times that most streams do not have: as --started-at for a capture, as
// Kafka's time for a record.
var capturedAt = time.Date(2026, 9, 17, 12, 0, 0, 0, time.UTC)

func TestArtifact_IsWhatTheCaptureGives(t *testing.T) {
	body, err := os.ReadFile("capture.sse")
	if err != nil {
		t.Fatal(err)
	}
	var events [][]byte
	for block := range bytes.SplitSeq(body, []byte("\n\n")) {
		if data, ok := bytes.CutPrefix(block, []byte("data: ")); ok {
			events = append(events, data)
		} else if len(block) > 0 {
			t.Fatalf("%.60q is no SSE event of one line", block)
		}
	}
	a, report, err := artifact.FromEnvelope(events, capturedAt)
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

// RUN_FINISHED and a snapshot mean neither an answer nor an end: these qualify.
func TestArtifact_DoesNotSayWhetherThereWasAnAnswer(t *testing.T) {
	for _, tc := range []struct {
		framework, thread string
		roles             []string
		outcome           string
	}{
		{"ag-ui-adk", "error-code", []string{agui.RoleUser}, "success"},
		{"ag-ui-langgraph", "interrupt", []string{agui.RoleUser, agui.RoleAssistant}, "interrupt"},
	} {
		thread, ok := recordings.Find(tc.framework, tc.thread)
		if !ok {
			t.Fatalf("the recording %s of %s is gone", tc.thread, tc.framework)
		}
		lines := thread.Runs[0].Lines()
		a, _, err := artifact.FromEnvelope(lines, capturedAt)
		if err != nil {
			t.Fatal(err)
		}
		end, err := agui.Decode(lines[len(lines)-1])
		if err != nil {
			t.Fatal(err)
		}
		var roles []string
		for _, m := range a.Messages {
			roles = append(roles, m.Role)
		}
		if a.TerminalEvent != agui.RunFinished || !slices.Equal(roles, tc.roles) || end.OutcomeType() != tc.outcome {
			t.Errorf("%s: %s of %q, messages of %v", tc.thread, a.TerminalEvent, end.OutcomeType(), roles)
		}
	}
}

// Where a capture gives an artifact, the run's record gives one of the same messages. Their order may
// differ: the official client, which a record follows, leaves a message in its place when a snapshot
// names it elsewhere. The table of the README says where.
func TestRecords_HaveTheMessagesOfCaptures(t *testing.T) {
	compared := 0
	eachRun(t, func(r recordings.Run, fold *compact.Run) {
		ofCapture, _, err := artifact.FromEnvelope(r.Lines(), capturedAt)
		if err != nil {
			return
		}
		ofRecord, _, err := artifact.FromRun(runOf(t, fold), time.Time{})
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
			in, err := agui.DecodeInput(r.Input, "")
			if err != nil {
				tb.Fatal(err)
			}
			start := lineage.StartHistory(lineage.ParentExplicit, history, in)
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

func runOf(tb testing.TB, fold *compact.Run) artifact.Run {
	tb.Helper()
	s := fold.Summary()
	started, err := agui.Decode(s.Started)
	if err != nil {
		tb.Fatal(err)
	}
	r := artifact.Run{ThreadID: started.ThreadID, RunID: started.RunID, StartedAt: capturedAt, Started: started, Messages: fold.Messages()}
	if s.Terminal != nil {
		if r.Terminal, err = agui.Decode(s.Terminal); err != nil {
			tb.Fatal(err)
		}
	}
	return r
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
