package record_test

import (
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestTraceparent_TakesWhatW3CDefines(t *testing.T) {
	for value, want := range map[string]string{
		traceparent:                                        traceparent,
		"cc" + traceparent[2:]:                             traceparent, // of a later version
		"cc" + traceparent[2:] + "-more":                   traceparent,
		traceparent[:53] + "fd":                            traceparent, // with flags of a later version
		traceparent[:53] + "03":                            traceparent[:53] + "03",
		"cc" + traceparent[2:] + "more":                    "",
		"ff" + traceparent[2:]:                             "",
		traceparent + "-more":                              "",
		traceparent[:54]:                                   "",
		strings.ToUpper(traceparent):                       "",
		strings.Replace(traceparent, "-", "", 1):           "",
		strings.Replace(traceparent, "-", "0", 1):          "",
		strings.Replace(traceparent, "4", "-", 1):          "",
		"00-" + strings.Repeat("0", 32) + traceparent[35:]: "",
		traceparent[:36] + strings.Repeat("0", 16) + "-01": "",
		"none": "",
		"":     "",
	} {
		if got := record.Traceparent(value); got != want {
			t.Errorf("Traceparent(%q) is %q, want %q", value, got, want)
		}
		wantID := ""
		if want != "" {
			wantID = "4bf92f3577b34da6a3ce929d0e0e4736"
		}
		if got := (&record.Run{Traceparent: value}).TraceID(); got != wantID {
			t.Errorf("TraceID of %q is %q, want %q", value, got, wantID)
		}
	}
}
