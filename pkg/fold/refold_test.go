package fold

import (
	"testing"

	"github.com/skeinhq/skein/pkg/record"
)

func TestRefold_Of(t *testing.T) {
	thread := TableOf([]*record.Run{
		{RunID: "r~2", ClientRunID: "r", Status: record.StatusFinished, Raw: record.Raw{First: 40, Next: 50}},
		{RunID: "r", Status: record.StatusFinished, Raw: record.Raw{First: 10, Next: 30}},
		{RunID: "silent", Status: record.StatusAbandoned, Raw: record.Raw{First: 5, Next: 8}},
		{RunID: "s", Status: record.StatusError, Raw: record.Raw{First: 20, Next: 25}},
	})
	for name, c := range map[string]struct {
		named  string
		offset int64
		want   string // "" is none
	}{
		"before its run":                           {"r", 9, ""},
		"its run's first":                          {"r", 10, "r"},
		"behind its run's end":                     {"r", 35, "r"},
		"the id used again":                        {"r", 40, "r~2"},
		"the id of the record is not the agent's":  {"r~2", 45, ""},
		"a run that is not there":                  {"x", 45, ""},
		"unnamed, before all":                      {"", 4, ""},
		"unnamed, one run is open":                 {"", 15, "r"},
		"unnamed, of two open ones the later":      {"", 22, "s"},
		"unnamed, the later one has ended":         {"", 25, "r"},
		"unnamed, an abandoned run counts as open": {"", 31, "silent"},
		"unnamed, the last record of a run":        {"", 49, "r~2"},
	} {
		t.Run(name, func(t *testing.T) {
			var d Decoded
			d.Reset(&record.Event{Offset: c.offset, Headers: record.Headers{Kind: record.KindEvent, RunID: c.named}, Value: []byte(`{"type":"CUSTOM","name":"x","value":1}`)})
			got := ""
			if m := thread.Of(&d); m != nil {
				got = m.ID
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A run that was abandoned may go on, but not where it was closed or its record was cut.
func TestNewRecordTable_EndsARunThatWasClosedOrCut(t *testing.T) {
	for _, is := range [][2]bool{{false, false}, {false, true}, {true, false}} {
		s := TableOf([]*record.Run{{RunID: "r", Status: record.StatusAbandoned, Truncated: is[0], Closed: is[1]}}).Get("r")
		if want := is[0] || is[1]; s.Sealed != want {
			t.Errorf("cut %t, closed %t: sealed %t", is[0], is[1], s.Sealed)
		}
	}
}
