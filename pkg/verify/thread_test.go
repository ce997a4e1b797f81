package verify

import (
	"slices"
	"testing"

	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/record"
)

// Of a run of which nothing but its input has come there is no fold to compare with, be it open, or abandoned and too
// large for a record that could go on.
func TestCompared_ComparesNoFoldWhereOnlyAnInputHasCome(t *testing.T) {
	pending := &record.Run{Status: record.StatusRunning, Open: &record.Open{Pending: true}, FoldVersion: compact.Version}
	cut := &record.Run{Status: record.StatusAbandoned, Truncated: true, FoldVersion: compact.Version}
	for _, r := range []*record.Run{pending, cut} {
		for member, want := range map[string]bool{"status": true, "historyKey": true, "endedAt": true, "inputSha256": false,
			"raw.sha256": false} {
			if compared(r, false, member) == want {
				t.Errorf("%s: %s is left out: %t, want %t", r.Status, member, !want, want)
			}
		}
		if said := unprovedOf(r); !slices.Contains(said, "the contents: the record has none yet") {
			t.Errorf("%s: it says %q", r.Status, said)
		}
	}
}
