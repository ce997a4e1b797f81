package main

import "testing"

// Sums that none of the unit costs was taken from, against what docs/bench measured as a whole.
func TestPlan_AgreesWithWhatWasMeasured(t *testing.T) {
	l, c := parse(nil)
	check := func(what string, got, least, most float64) {
		t.Helper()
		if got < least || got > most {
			t.Errorf("%s: %g, want %g to %g", what, got, least, most)
		}
	}
	near := func(what string, got, measured, within float64) {
		t.Helper()
		check(what, got, measured*(1-within), measured*(1+within))
	}

	check("compactor.md, Drain: a million events took 2.17 to 3.47 s, less than at a live pace, whose cost is planned with",
		l.plan(c).compactorCores/(l.runs*l.events)*1e6, 3.47, 2*3.47)

	for turns, bytes := range map[float64][2]float64{10: {3109, 8177}, 100: {2683, 7829}, 1000: {3088, 4606}, 10_000: {2886, 3792}} {
		turn := l
		turn.turns, turn.textBytes = turns, 1000
		stored, written := turn.records()
		near("bytes-per-turn.md: bytes stored a turn", stored, bytes[0], 0.15)
		near("bytes-per-turn.md: bytes written a turn", written, bytes[1], 0.25)
	}

	live := l
	live.turns, live.textBytes = 1, 500*6.5
	_, written := live.records()
	near("compactor.md, Live: bytes written a run: 0.14 of 500 events of 127 bytes", written, 500*127*0.14, 0.15)

	ended := l
	ended.runs, ended.days, ended.textBytes = 300_000, 1./day, (432*mib/300_000.-1000)/2
	again := ended.plan(c)
	near("capacity.md: s that 300,000 ended runs, 432 MiB, took to read again", again.rebuildHours*again.compactors*3600, 26, 0.15)

	for framework, bytes := range map[string][2]float64{
		"LangGraph": {1274, 1421}, "Google ADK": {1471, 1509}, "pydantic-ai": {1368, 1424}, "LlamaIndex": {836, 1965},
	} {
		recorded := l
		recorded.textBytes = bytes[0]
		p := recorded.plan(c)
		check("analytics.md: bytes of a recorded run, the most that one takes: "+framework, p.serverDisk/p.kept, bytes[1]/2, bytes[1])
	}
}
