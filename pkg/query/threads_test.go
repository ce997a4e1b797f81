package query

import (
	"testing"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// The thread is shown by its graph's tip, which is no spawned run.
func TestSummary_IsOfTheTip(t *testing.T) {
	run := func(id, parent string, first int64, spawned bool) store.Run {
		place := record.Lineage{ParentRunID: parent, Spawned: spawned}
		return store.Run{Run: record.Run{ThreadID: "th", RunID: id, Lineage: place, Raw: record.Raw{First: first}}}
	}
	for want, runs := range map[string][]store.Run{
		"b": {run("a", "", 1, false), run("s", "", 2, true), run("b", "a", 3, false), run("t", "s", 4, true)},
		"t": {run("s", "", 2, true), run("t", "s", 4, true)},
	} {
		if got := summary(runs).LastRunID; got != want || got != graphOf(runs).Tip() {
			t.Errorf("last run %s, tip %s, want %s", got, graphOf(runs).Tip(), want)
		}
	}
}
