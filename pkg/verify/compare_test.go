package verify

import (
	"testing"

	"github.com/skeinhq/skein/pkg/record"
)

// Records without times of tool calls say nothing of them; others are held to theirs.
func TestDifferences_LeaveOutTimesThatTheRecordLacks(t *testing.T) {
	of := func(times map[string][]int64) *record.Run {
		return &record.Run{Stats: record.Stats{ToolCallTimes: times}}
	}
	made := of(map[string][]int64{"c": {1, 2}})
	for name, c := range map[string]struct {
		given map[string][]int64
		want  int
	}{"none": {nil, 0}, "the same": {map[string][]int64{"c": {1, 2}}, 0}, "others": {map[string][]int64{"c": {1, 3}}, 1},
		"an empty list": {map[string][]int64{}, 1}} {
		if got, err := Differences(of(c.given), made); err != nil || len(got) != c.want ||
			c.want == 1 && got[0].Member != "stats.toolCallTimesMs" {
			t.Errorf("%s: %v, %v, want %d", name, got, err, c.want)
		}
	}
	if made.Stats.ToolCallTimes == nil {
		t.Error("what was made was changed")
	}
}
