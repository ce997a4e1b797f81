package conformance_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/test/conformance"
)

// What a fold compacts folds to what it held, also where the events were of an older form: nothing is read
// in one way as an event, and in another as a message.
func TestCompacted_FoldsToTheSame(t *testing.T) {
	check := func(t *testing.T, start conformance.Start, events [][]byte) {
		t.Helper()
		f := foldOf(t, start, events)
		var compacted [][]byte
		for _, e := range compact.Compacted(compact.Step{Run: f.run}) {
			compacted = append(compacted, e)
		}
		again := foldOf(t, conformance.Start{}, compacted)
		if len(again.malformed) > 0 {
			t.Errorf("compacted events %v are malformed", again.malformed)
		}
		if d := conformance.Diff(f.Conversation, again.Conversation); d != "" {
			t.Error(d)
		}
	}
	for _, c := range readCases(t) {
		name := strings.TrimSuffix(filepath.Base(c.file), ".txtar")
		if name == "activity_without_content" {
			continue // it starts from what no event can bring
		}
		t.Run(name, func(t *testing.T) { check(t, c.start, c.events) })
	}
	for row, pairs := range upgradePairs {
		for name, pair := range pairs {
			t.Run(strings.TrimSpace(row+" "+name), func(t *testing.T) {
				var lines [][]byte
				for _, e := range pair.older {
					lines = append(lines, []byte(e))
				}
				check(t, conformance.Start{}, lines)
			})
		}
	}
}
