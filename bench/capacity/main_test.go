package main

import (
	"math"
	"testing"
)

// The unit costs, put together, give what docs/bench measured as a whole.
func TestPlan_AgreesWithWhatWasMeasured(t *testing.T) {
	l, c := parse(nil)
	check := func(what string, got, measured, within float64) {
		t.Helper()
		if math.Abs(got/measured-1) > within {
			t.Errorf("%s: %g, measured %g", what, got, measured)
		}
	}
	live := l
	live.runs, live.events = 20_000/505., 505
	check("Live: CPU s of a million events", live.plan(c).compactorCores/20_000*1e6, 4.89, 0.1)
	check("Live: bytes of an event in Kafka", live.plan(c).eventsIn/20_000, 25, 0.1)

	for turns, bytes := range map[float64][2]float64{10: {3109, 8177}, 100: {2683, 7829}, 1000: {3088, 4606}, 10_000: {2886, 3792}} {
		turn := l
		turn.turns, turn.textBytes = turns, 1000
		stored, written := turn.records()
		check("bytes stored a turn", stored, bytes[0], 0.15)
		check("bytes written a turn", written, bytes[1], 0.25)
	}

	index := l
	index.runs, index.days = 200_000, 1./day // within a second
	check("Indexer: CPU s", index.plan(c).indexerCores, 27.7, 0.1)
	check("Indexer: CPU s of ClickHouse", index.plan(c).serverCores, 31.7, 0.1)
	check("Indexer: time", index.plan(c).reindex*index.plan(c).indexers, 39*0.87/3600, 0.1)

	ended := l
	ended.runs, ended.days = 2_000_000, 1./day
	live.days, live.turns, live.textBytes = 1, 1, 500*6.5
	check("Live: bytes of records in Kafka", live.plan(c).recordsIn*day/live.plan(c).kept, 3_532_000/800., 0.15)

	check("Memory: reading again", ended.plan(c).rebuildHours*ended.plan(c).compactors, 155./3600, 0.1)
}
