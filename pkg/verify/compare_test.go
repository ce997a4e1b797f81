package verify

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
)

// Records from before new numbers were told from repeats count both as repeats, wholly or up to where they were written.
func TestAsCounted(t *testing.T) {
	const r, b = fold.AnomalyRepeat, fold.AnomalyBackwards
	for name, c := range map[string]struct{ made, given, want map[string]int64 }{
		"as by now":                {map[string]int64{r: 1, b: 2}, map[string]int64{r: 1, b: 2}, map[string]int64{r: 1, b: 2}},
		"all are repeats":          {map[string]int64{r: 1, b: 2}, map[string]int64{r: 3}, map[string]int64{r: 3}},
		"some are":                 {map[string]int64{b: 2}, map[string]int64{r: 1, b: 1}, map[string]int64{r: 1, b: 1}},
		"one is missing":           {map[string]int64{r: 1, b: 2}, map[string]int64{r: 2}, map[string]int64{r: 1, b: 2}},
		"more are new than can be": {map[string]int64{r: 2}, map[string]int64{r: 1, b: 1}, map[string]int64{r: 2}},
		"none":                     {nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			of := func(version int, counted map[string]int64) *record.Run {
				return &record.Run{FoldVersion: version, Stats: record.Stats{Anomalies: counted}}
			}
			made := of(1, maps.Clone(c.made))
			got, _ := json.Marshal(asCounted(of(1, c.given), made).Stats.Anomalies)
			if want, _ := json.Marshal(c.want); string(got) != string(want) {
				t.Errorf("got %s, want %s", got, want)
			}
			if !maps.Equal(made.Stats.Anomalies, c.made) {
				t.Errorf("what was made is %v by now", made.Stats.Anomalies)
			}
			if is := asCounted(of(2, c.given), made); is != made {
				t.Errorf("by rules of version 2: %v", is.Stats.Anomalies)
			}
		})
	}
}

// Records from before tool calls had times say nothing of them; others are held to theirs.
func TestDifferences_LeaveOutTimesThatTheRecordLacks(t *testing.T) {
	of := func(times map[string][]int64) *record.Run {
		return &record.Run{Stats: record.Stats{ToolCallTimes: times}}
	}
	made := of(map[string][]int64{"c": {1, 2}})
	for name, c := range map[string]struct {
		given map[string][]int64
		want  int
	}{"none": {nil, 0}, "the same": {map[string][]int64{"c": {1, 2}}, 0}, "others": {map[string][]int64{"c": {1, 3}}, 1}, "an empty list": {map[string][]int64{}, 1}} {
		if got, err := Differences(of(c.given), made); err != nil || len(got) != c.want || c.want == 1 && got[0].Member != "stats.toolCallTimesMs" {
			t.Errorf("%s: %v, %v, want %d", name, got, err, c.want)
		}
	}
	if made.Stats.ToolCallTimes == nil {
		t.Error("what was made was changed")
	}
}
