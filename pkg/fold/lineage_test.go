package fold

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

// A resume finds a run by its interrupts, also if the run failed after its end and its terminal event was cut.
func TestLineageOf_KeepsTheInterruptsOfARunThatFailedLate(t *testing.T) {
	ids := func(r *record.Run) string { return strings.Join(LineageOf(r).Interrupts, " ") }
	r := &record.Run{
		Status: record.StatusInterrupted, Interrupts: []json.RawMessage{[]byte(`{"id":"a"}`), []byte(`{"id":7}`), []byte(`{"id":"b"}`)},
		Terminal: []byte(`{"type":"RUN_FINISHED","skeinTruncated":{"bytes":99}}`),
	}
	before := ids(r)
	r.FailLate(record.LateError{Offset: 1, Event: []byte(`{"type":"RUN_ERROR","message":"m"}`)})
	if got := ids(r); got != before || got != "a b" || r.Interrupts != nil {
		t.Errorf("%q, before %q; open %s", got, before, r.Interrupts)
	}
}

// Metadata of all runs of a thread is in memory, so an id of any length may not get there.
func TestInterruptIDs_AreBounded(t *testing.T) {
	of := func(id string) json.RawMessage { return agui.AppendString([]byte(`{"id":`), id) }
	long := []json.RawMessage{append(of(strings.Repeat("x", 1<<20)), '}'), append(of("short"), '}')}
	if got := InterruptIDs(long); len(got) != 1 || got[0] != "short" {
		t.Errorf("%d ids of a long one and a short one", len(got))
	}
	var many []json.RawMessage
	for range 10_000 {
		many = append(many, json.RawMessage(`{"id":"0123456789abcdef0123456789abcdef"}`))
	}
	if got := InterruptIDs(many); len(strings.Join(got, "")) > maxInterruptBytes || len(got) < 60 {
		t.Errorf("%d ids of %d bytes", len(got), len(strings.Join(got, "")))
	}
}
