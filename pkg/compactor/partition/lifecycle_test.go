package partition

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// A run that grows beyond four times the record limit is cut there. Its record then fits, so the committed offset moves on, and its end is
// the agent's.
func TestPartition_CutsARunThatHasOutgrownItsRecord(t *testing.T) {
	const limit, piece = 64 << 10, 10 << 10
	s := newSim(t, func(c *Config) { c.RecordLimit = limit })
	s.Turn("first", "m1")
	s.Send("t", "large", started("large"))
	for i := range 40 {
		s.Send("t", "large", text(fmt.Sprint("m", i/8), strings.Repeat("x", piece)))
	}
	s.all()
	large := s.run("large")
	equal(t, "status", large.Status, record.StatusRunning)
	if e := large.Cut.Events; e < 4*limit/piece || e > 5*limit/piece+1 {
		t.Errorf("it is cut at event %d", e)
	}
	equal(t, "C", s.committed.Committed, int64(len(s.Events)))
	s.Send("t", "large", finished("large"))
	s.Turn("next", "m2")
	s.all()
	large = s.run("large")
	equal(t, "record", []any{large.Status, large.Synthetic, large.Truncated, large.Raw.Events},
		[]any{record.StatusFinished, false, true, int64(42)})
	equal(t, "dead letters", s.letters(), []string{})
	next := s.run("next")
	equal(t, "place of the next run", []any{next.ParentRunID, next.ParentBy, next.Base}, []any{"large", record.ParentLatest, "large"})
	s.checkHeads()
	s.checkTold()
}

// What counts is what a run holds, not what it has said; a part counts for more than its bytes.
func TestPartition_CutsNoRunThatHoldsLittle(t *testing.T) {
	const limit = 64 << 10
	much := strings.Repeat("x", 20<<10)
	for name, c := range map[string]struct {
		say   func(i int) string
		times int
		cut   bool
	}{
		"state that is replaced":   {func(int) string { return `{"type":"STATE_SNAPSHOT","snapshot":{"x":"` + much + `"}}` }, 100, false},
		"events that are not kept": {func(int) string { return `{"type":"RAW","event":"` + much + `"}` }, 100, false},
		"a few large messages":     {func(i int) string { return text(fmt.Sprint("m", i), much) }, 12, false},
		"large messages":           {func(i int) string { return text(fmt.Sprint("m", i), much) }, 17, true},
		"kept events":              {func(int) string { return custom(much) }, 17, true},
		"many small messages":      {func(i int) string { return text(fmt.Sprint("m", i), "x") }, 2000, true},
		"many tool calls": {func(i int) string {
			return fmt.Sprintf(`{"type":"TOOL_CALL_START","toolCallId":"c%d","toolCallName":"f"}`, i)
		}, 2000, true},
		"many types": {func(i int) string { return fmt.Sprintf(`{"type":"X%d-%s"}`, i, much[:40]) }, 2000, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, func(c *Config) { c.RecordLimit = limit })
			s.Send("t", "r", started("r"))
			for i := range c.times {
				s.Send("t", "r", c.say(i))
			}
			s.Send("t", "r", finished("r"))
			s.all()
			equal(t, "cut", s.run("r").Cut != nil, c.cut)
		})
	}
}

// However events are split into batches and wherever the process dies, large runs are placed and cut alike: beside others, of which
// some are silent, with inputs that come before them, twice, or with their first events; and threads are erased.
func TestPartition_AnyBatchingAndAnyCrashPlaceAndCutLargeRunsAlike(t *testing.T) {
	const limit = 6 << 10
	seed := newSeed(t)
	alone, places, cut := 0, 0, 0
	shown := func() bool { return alone > 0 && places > 0 && cut > 0 }
	for i := range untilShown(shown) {
		rng := rand.New(rand.NewPCG(seed+uint64(i), 7))
		snapshotBelow, kept := []int{0, 32 << 10}[rng.IntN(2)], agui.Families(rng.IntN(64))
		configure := func(c *Config) { c.RecordLimit, c.SnapshotBelow, c.KeepEvents = limit, snapshotBelow, kept }
		want := newSim(t, configure)
		largeRuns(want, rng)
		got := sameHowever(t, rng, want, func(c *Config) {
			configure(c)
			c.OpenRunBytes, c.maxThreadRunsInMemory = rng.IntN(2)<<20, rng.IntN(2)*maxThreadRunsInMemory
		})
		for _, r := range want.latest() {
			alone += int(r.Stats.Anomalies[lineage.AnomalyPlacedAlone])
			if r.Cut != nil {
				cut++
			}
		}
		for _, m := range got.runs {
			if r, err := record.DecodeRun(m.Value); err == nil && r.Open != nil && r.Open.Placed {
				places++
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed+uint64(i))
		}
	}
	t.Logf("%d runs were placed alone, %d records said a place alone, %d runs were cut", alone, places, cut)
	if !shown() {
		t.Error("no run was too large, or has grown too large")
	}
}

// Each process may have another record limit. No event is lost: it is in a record or a dead letter, or is erased.
func TestPartition_AnyRecordLimitOfTheNextProcessLosesNothing(t *testing.T) {
	seed := newSeed(t)
	for i := range rounds() {
		rng := rand.New(rand.NewPCG(seed+uint64(i), 8))
		s := newSim(t, func(c *Config) {
			c.OpenRunBytes, c.maxThreadRunsInMemory = rng.IntN(2)<<20, rng.IntN(2)*maxThreadRunsInMemory
		})
		largeRuns(s, rng)
		s.nextLimit = func() int { return []int{6, 9, 24}[rng.IntN(3)] << 10 }
		s.live(rng)
		s.checkRecords()
		s.checkNothingLost()
		if t.Failed() {
			t.Fatalf("seed %d", seed+uint64(i))
		}
	}
}

// largeRuns writes a random history of runs that are large for a record limit of 6 KiB.
func largeRuns(s *sim, rng *rand.Rand) {
	type run struct {
		id  string
		seq int // -1: it is not numbered
	}
	type thread struct {
		name string
		n    int
		open []*run
		past []string
	}
	threads := []*thread{{name: "t1"}, {name: "t1"}, {name: "t2"}}
	threads[1] = threads[0]
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	most := []int{4000, 4000, 16000}[rng.IntN(3)] // above four limits a run is cut
	upTo := func(most int) string { return strings.Repeat("x", rng.IntN(most)*rng.IntN(2)) }
	fill := func() string { return upTo(most) }
	for range 60 + rng.IntN(250) {
		s.Now = s.Now.Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
		if rng.IntN(60) == 0 {
			s.Now = s.Now.Add(2 * s.cfg.IdleLimit)
		}
		th := threads[rng.IntN(len(threads))]
		if rng.IntN(100) == 0 {
			s.Erase(th.name)
			continue
		}
		if len(th.open) < 1+rng.IntN(4) {
			th.n++
			r := &run{id: fmt.Sprintf("%s-%d", th.name, th.n), seq: -(1 + rng.IntN(3)) / 3}
			if len(th.past) > 0 && rng.IntN(10) == 0 {
				r.id = pick(th.past...)
			}
			th.open = append(th.open, r)
		}
		at := rng.IntN(len(th.open))
		r := th.open[at]
		say := func(value string) {
			if r.seq < 0 {
				s.Send(th.name, pick(r.id, r.id, r.id, ""), value)
				return
			}
			for range 1 + rng.IntN(8)/7 {
				s.Send(th.name, r.id, value, seq(r.seq))
			}
			r.seq += 1 + rng.IntN(4)/3
		}
		parent := ""
		if rng.IntN(3) > 0 {
			others := append([]string{fmt.Sprintf("%s-%d", th.name, 1+rng.IntN(th.n+1)), "elsewhere"}, th.past...)
			for _, o := range th.open {
				others = append(others, o.id)
			}
			parent = fmt.Sprintf(`,"parentRunId":%q`, pick(others...))
		}
		var said []string
		for range rng.IntN(3) {
			said = append(said, assistantMessage(fmt.Sprint("m", rng.IntN(6)), "s"))
		}
		said = append(said, userMessage(fmt.Sprint("u", rng.IntN(5)), upTo(4000)))
		input := fmt.Sprintf(`{"threadId":%q,"runId":%q%s,"messages":[%s],"state":{ "n":%d},"tools":[],"context":[],"forwardedProps":%q}`,
			th.name, r.id, parent, strings.Join(said, ", "), rng.IntN(3), pick("", "", upTo(4000)))
		switch rng.IntN(20) {
		case 0, 1:
			for range 1 + rng.IntN(6)/5 {
				s.Input(th.name, r.id, input)
			}
		case 2:
			say(fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q%s,"input":%s}`, th.name, r.id, parent, input))
		case 3, 4:
			say(fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q%s}`, th.name, r.id, parent))
		case 5, 6:
			say(finished(r.id))
			th.past, th.open = append(th.past, r.id), slices.Delete(th.open, at, at+1)
		case 7:
			say(fmt.Sprintf(`{"type":"MESSAGES_SNAPSHOT","messages":[ { "id":"m%d", "role":"assistant", "content":"s" } ]}`, rng.IntN(6)))
		case 8, 9:
			say(fmt.Sprintf(`{"type":"STATE_SNAPSHOT","snapshot":{ "s" : %q }}`, fill()))
		case 10:
			say(fmt.Sprintf(`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/k%d","value": %q}]}`, rng.IntN(3), fill()))
		case 11:
			say(`{"type":"STATE_DELTA","delta":[{"op":"copy","from":"/s","path":"/b"},{"op":"copy","from":"/s","path":"/c"}]}`)
		case 12:
			say(fmt.Sprintf(`{"type":"CUSTOM", "name":"x", "value": %q }`, fill()))
		case 13:
			say(pick(`{"type":"TEXT_MESSAGE_CONTENT","messageId":7}`, `{"type":`, `[]`))
		default:
			say(text(fmt.Sprint("m", rng.IntN(6)), fill()))
		}
	}
	for range 2 { // what is open ends; an id that was used again is open once more behind that
		for _, th := range threads[1:] {
			for n := range th.n {
				id := fmt.Sprintf("%s-%d", th.name, n+1)
				s.Send(th.name, id, finished(id))
			}
		}
	}
}

// What came of a run whose record says its place alone is gone before it is read again: it goes on at that place, marked, from
// what it took over; and it can be abandoned, and go on again.
func TestPartition_GoesOnFromAPlaceWhoseEventsAreGone(t *testing.T) {
	const limit = 16 << 10
	s := newSim(t, func(c *Config) { c.RecordLimit = limit })
	s.Send("t", "S", started("S"))
	s.Send("t", "S", text("mS", "x"))
	s.Send("t", "S", `{"type":"STATE_SNAPSHOT","snapshot":{"v":1}}`)
	s.all()
	s.Now = s.Now.Add(s.cfg.CheckpointInterval)
	s.commit(true)
	s.Send("t", "R", `{"type":"RUN_STARTED","threadId":"t","runId":"R","parentRunId":"S"}`)
	for range 2 {
		s.Send("t", "R", text("gone", strings.Repeat("x", limit-200)))
	}
	s.all()
	placed := s.run("R")
	equal(t, "its record", []any{placed.Open.Placed, placed.Open.Pending, placed.Raw.First, placed.Raw.Next, placed.Raw.Events},
		[]any{true, true, int64(3), int64(3), int64(0)})
	equal(t, "C", s.committed.Committed, int64(3))
	s.Send("t", "S", text("mS", " two"))
	s.open(false)
	s.openGap(6)
	s.all()
	place := func(r *record.Run) []any {
		return []any{r.ParentRunID, r.BranchID, r.RootRunID, r.Depth, r.Base, r.RawLost}
	}
	lost := s.run("R")
	equal(t, "its record behind the gap", []any{lost.Open.Placed, lost.Raw.Next}, []any{true, int64(3)})
	equal(t, "C", s.committed.Committed, int64(6)) // where S goes on
	s.Now = s.Now.Add(2 * s.cfg.IdleLimit)
	s.Send("u", "other", started("other"))
	s.all()
	equal(t, "it is abandoned", s.run("R").Status, record.StatusAbandoned)
	s.open(true)
	s.Send("t", "R", text("here", "y"))
	s.Send("t", "K", `{"type":"RUN_STARTED","threadId":"t","runId":"K","parentRunId":"R"}`)
	s.Send("t", "R", finished("R"))
	s.all()
	r := s.run("R")
	equal(t, "its place", place(r), []any{"S", "S", "S", 1, "", true})
	equal(t, "its child", s.run("K").ParentRunID, "R")
	messages, state := s.history("R")
	equal(t, "its history", messages, `[`+assistantMessage("mS", "x")+`,`+assistantMessage("here", "y")+`]`)
	equal(t, "its state", state, `{"v":1}`)
	s.checkHeads()
}
