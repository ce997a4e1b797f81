package fold_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
)

// Compacted events name the parent of a run where who takes them in would not find it: where the one before is open
// there. They name none that they do not hold.
func TestTurns_NameTheParentsThatCompactedEventsHold(t *testing.T) {
	const (
		starts1 = `{"type":"RUN_STARTED","threadId":"t","runId":"r1"}`
		says    = `{"type":"TEXT_MESSAGE_CHUNK","messageId":"a1","delta":"one"}`
		ends1   = `{"type":"RUN_FINISHED","threadId":"t","runId":"r1"}`
		starts2 = `{"type":"RUN_STARTED","threadId":"t","runId":"r2","input":{"messages":["two"]}}`
		ends2   = `{"type":"RUN_FINISHED","threadId":"t","runId":"r2"}`
	)
	for name, c := range map[string]struct {
		first []string
		want  string
	}{
		"the run before has ended":      {[]string{starts1, says, ends1}, ""},
		"the run before has not":        {[]string{starts1, says}, `"r1"`},
		"the run before does not start": {[]string{says, ends1}, ""},
		"neither starts it nor ends":    {[]string{says}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			turns, err := fold.NewTurns(0)
			if err != nil {
				t.Fatal(err)
			}
			for run, events := range [][]string{c.first, {starts2, ends2}} {
				var lines [][]byte
				for _, e := range events {
					lines = append(lines, []byte(e))
				}
				if err := turns.Add([]string{"r1", "r2"}[run], nil, lines, func(_ int, why error) { t.Error(why) }); err != nil {
					t.Fatal(err)
				}
			}
			if last := turns.Runs()[1]; last.Place.Parent != "r1" || len(last.Fold.Messages()) != 2 {
				t.Errorf("its parent is %q, it has %d messages", last.Place.Parent, len(last.Fold.Messages()))
			}
			for _, e := range compact.Compacted(turns.Steps()...) {
				if strings.Contains(string(e), `"r2"`) && strings.Contains(string(e), "RUN_STARTED") {
					if got := agui.Lookup(e, "parentRunId"); string(got) != c.want {
						t.Errorf("it names %s, want %s", got, c.want)
					}
				}
			}
		})
	}
}

// A RUN_ERROR after RUN_FINISHED stays behind it in compacted events. Whatever else comes after an end is left out.
func TestTurns_KeepALateError(t *testing.T) {
	events := []string{
		`{"type":"RUN_STARTED","threadId":"t","runId":"r1"}`, `{"type":"RUN_FINISHED","threadId":"t","runId":"r1"}`,
		`{"type":"RUN_ERROR","message":"flush failed"}`, `{"type":"RUN_ERROR","message":"again"}`, `{"type":"CUSTOM","name":"n","value":1}`,
	}
	for _, want := range [][]int{{3, 4}, nil} { // compacted, the events are the same
		var lines [][]byte
		for _, e := range events {
			lines = append(lines, []byte(e))
		}
		turns, err := fold.NewTurns(0)
		if err != nil {
			t.Fatal(err)
		}
		var left []int
		if err := turns.Add("r1", nil, lines, func(n int, _ error) { left = append(left, n) }); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(left, want) {
			t.Errorf("left out: %v, want %v", left, want)
		}
		events = nil
		for _, e := range compact.Compacted(turns.Steps()...) {
			events = append(events, string(e))
		}
		if n := len(events); n < 2 || !strings.Contains(events[n-2], "RUN_FINISHED") || !strings.Contains(events[n-1], "flush failed") {
			t.Errorf("compacted: %v", events)
		}
	}
}

// A malformed end ends its run as it does for the compactor: what follows is left out.
func TestTurns_EndARunWhoseEndIsMalformed(t *testing.T) {
	turns, err := fold.NewTurns(0)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	err = turns.Add("r", nil, [][]byte{
		[]byte(`{"type":"RUN_ERROR"}`), // alone it is no run
		[]byte(`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`),
		[]byte(`{"type":"RUN_ERROR","error":"no"}`),
		[]byte(`{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`),
	}, func(_ int, why error) { left = append(left, why.Error()) })
	if err != nil || len(left) != 3 {
		t.Fatalf("%v, left out are %q", err, left)
	}
	if s := turns.Runs()[0].Fold.Summary(); s.Status != "error" || !strings.Contains(string(s.Terminal), "RUN_ERROR: message is missing") {
		t.Errorf("the run is %s: %s", s.Status, s.Terminal)
	}
}
