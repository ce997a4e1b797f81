package conformance_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/test/conformance"
)

var update = flag.Bool("update", false, "rewrite testdata with what the official client gives")

// folded is what Skein's fold makes of a stream.
type folded struct {
	conformance.Conversation
	run *compact.Run
	// malformed are the places of the events that are left out.
	malformed []int
	// violated is the first event at which a rule of the client's verification is counted, or -1, and
	// rules are those that are counted there.
	violated int
	rules    []string
}

// foldOf folds a stream from what a client holds.
func foldOf(tb rapid.TB, start conformance.Start, events []json.RawMessage) folded {
	tb.Helper()
	return foldFrom(tb, history(tb, conformance.Conversation(start)), events)
}

// foldFrom folds a stream the way a stage does: an event that is malformed is left out.
func foldFrom(tb rapid.TB, start lineage.History, events []json.RawMessage) folded {
	tb.Helper()
	f := folded{run: start.Fold(), violated: -1}
	before := countOf(f.run.Summary().Anomalies, verificationRules)
	for i, raw := range events {
		ev, err := agui.Decode(raw)
		if err == nil {
			err = f.run.Apply(ev)
		}
		switch {
		case agui.IsMalformed(err):
			f.malformed = append(f.malformed, i)
		case errors.Is(err, compact.ErrEnded):
		case err != nil:
			tb.Fatalf("folding event %d: %v", i, err)
		}
		if after := countOf(f.run.Summary().Anomalies, verificationRules); f.violated < 0 && !slices.Equal(before, after) {
			f.violated = i
			for r, rule := range verificationRules {
				if after[r] > before[r] {
					f.rules = append(f.rules, rule)
				}
			}
		}
	}
	f.Conversation = conformance.Conversation{Messages: toJSON(tb, f.run.Messages()), State: f.run.State()}
	return f
}

func history(tb rapid.TB, c conformance.Conversation) lineage.History {
	tb.Helper()
	h := lineage.History{State: c.State}
	if len(c.Messages) > 0 {
		if err := json.Unmarshal(c.Messages, &h.Messages); err != nil {
			tb.Fatal(err)
		}
	}
	return h
}

// foldRun folds a recorded run from its own input.
func foldRun(tb testing.TB, run recordings.Run) folded {
	tb.Helper()
	input, err := agui.DecodeInput(run.Input, "")
	if err != nil {
		tb.Fatalf("decoding input: %v", err)
	}
	return foldOf(tb, conformance.Start{Messages: toJSON(tb, input.Messages), State: input.State}, conformance.Raw(run.Lines()))
}

func TestFold_EqualsTheOfficialClientOnEveryRecordedRun(t *testing.T) {
	for _, thread := range recordings.All() {
		t.Run(thread.String(), func(t *testing.T) {
			want, err := conformance.Expected(thread)
			if err != nil {
				t.Fatal(err)
			}
			report.recordedThreads++
			var last folded
			for i, run := range thread.Runs {
				report.recordedRuns++
				got := foldRun(t, run)
				if len(got.malformed) > 0 {
					t.Errorf("%s: events %v are malformed to Skein, and to nobody else", run.RunID, got.malformed)
				}
				if d := conformance.Diff(want[i].Conversation, mask(t, thread, got.Conversation)); d != "" {
					t.Errorf("%s: %s", run.RunID, d)
				}
				last = got
			}
			var client struct{ PendingInterrupts json.RawMessage } // of the HttpAgent that the thread was recorded with
			if err := json.Unmarshal(thread.Client, &client); err != nil {
				t.Fatal(err)
			}
			interrupts := append([]json.RawMessage{}, last.run.Summary().Interrupts...)
			if d := conformance.DiffJSON("pendingInterrupts", client.PendingInterrupts, toJSON(t, interrupts)); d != "" {
				t.Error(d)
			}
		})
	}
}

// The checked-in results are what the client gives today, and end where the recorded client did.
func TestExpected_IsWhatTheClientGives(t *testing.T) {
	live, ok := conformance.Live(t)
	if *update && !ok {
		t.Fatal("-update needs the official client")
	}
	for _, thread := range recordings.All() {
		t.Run(thread.String(), func(t *testing.T) {
			var given []conformance.ExpectedRun
			if ok {
				var err error
				if given, err = conformance.LiveRuns(live, thread); err != nil {
					t.Fatal(err)
				}
			}
			if *update {
				writeExpected(t, thread, given)
				return
			}
			checkedIn, err := conformance.Expected(thread)
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range checkedIn {
				if want.RunID != thread.Runs[i].RunID {
					t.Errorf("checked-in result %d is of run %q, want %q", i, want.RunID, thread.Runs[i].RunID)
				}
			}
			last := checkedIn[len(checkedIn)-1]
			if d := conformance.Diff(recorded(t, thread), last.Conversation); d != "" {
				t.Errorf("checked-in result against the recorded client: %s", d)
			}
			for i := range given {
				if d := conformance.Diff(given[i].Conversation, checkedIn[i].Conversation); d != "" {
					t.Errorf("%s: checked-in result against the running client: %s", thread.Runs[i].RunID, d)
				}
			}
		})
	}
}

func writeExpected(t *testing.T, thread recordings.Thread, runs []conformance.ExpectedRun) {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(runs); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "expected", thread.String()+".json")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// recorded is what the recorded client held at the thread's end.
func recorded(t *testing.T, thread recordings.Thread) conformance.Conversation {
	t.Helper()
	var c conformance.Conversation
	if err := json.Unmarshal(thread.Client, &c); err != nil {
		t.Fatal(err)
	}
	return mask(t, thread, c)
}

func mask(t *testing.T, thread recordings.Thread, c conformance.Conversation) conformance.Conversation {
	t.Helper()
	c, err := conformance.Mask(thread, c)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// maskReasoning hides ids of reasoning messages, which the client makes up where they come from retired events.
func maskReasoning(t *testing.T, all ...*conformance.Conversation) {
	t.Helper()
	for _, c := range all {
		var err error
		if *c, err = conformance.MaskReasoning(*c); err != nil {
			t.Fatal(err)
		}
	}
}

func toJSON(tb rapid.TB, v any) json.RawMessage {
	tb.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		tb.Fatalf("encoding: %v", err)
	}
	return b
}
