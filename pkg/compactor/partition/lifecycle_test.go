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
	equal(t, "record", []any{large.Status, large.Synthetic, large.Truncated, large.Raw.Events}, []any{record.StatusFinished, false, true, int64(42)})
	equal(t, "dead letters", s.letters(), []string{})
	next := s.run("next")
	equal(t, "place of the next run", []any{next.ParentRunID, next.ParentBy, next.Base}, []any{"large", record.ParentLatest, "large"})
	s.checkHeads()
	s.checkTold()
}

// The record of an abandoned run is its final one where it was closed at once, and only there.
func TestOutput_IsFinalWhereAnAbandonedRunIsClosedAtOnce(t *testing.T) {
	s := newSim(t, func(c *Config) { c.RecordLimit = 64 << 10 })
	s.Send("t0", "small", started("small"))
	s.Send("t1", "large", started("large"))
	for i := range 10 {
		s.Send("t1", "large", text(fmt.Sprint("m", i), strings.Repeat("x", 10<<10)))
	}
	s.all()
	s.silence(s.cfg.IdleLimit)
	s.feed(len(s.Events))
	b, err := s.part.Collect(Cycle{Now: s.Now, LogEnd: -1, Room: NewRoom(1)})
	s.check(err)
	final := map[string]bool{}
	for _, o := range b.Outputs {
		parts, err := record.SplitKey(string(o.Record.Key))
		s.check(err)
		if o.Kind == outputAbandoned {
			final[parts[2]] = o.IsFinal()
		}
	}
	equal(t, "final records of abandoned runs", final, map[string]bool{"small": false, "large": true})
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

// A run over the limit is not written out over and over to find that it is: as if it had been written, that waits until
// it has grown by much, or for five minutes. One that says much within seconds is written all the same.
func TestPartition_TriesARecordOverTheLimitNowAndThen(t *testing.T) {
	const limit = 64 << 10
	s := newSim(t, func(c *Config) { c.RecordLimit = limit })
	s.Send("t", "r", started("r"))
	for range 4 {
		s.Send("t", "r", text("m", strings.Repeat("x", limit/2)))
	}
	s.all()
	tried := []time.Duration{}
	began := s.Now
	for range 40 {
		s.Now = s.Now.Add(15 * time.Second)
		s.Send("t", "r", text("m", "x"))
		s.all()
		if r := s.part.runs.byKey["acme/t/r"]; r.written.at.Equal(s.Now) {
			tried = append(tried, s.Now.Sub(began))
		}
	}
	equal(t, "tried after", tried, []time.Duration{s.cfg.CheckpointMax, 2 * s.cfg.CheckpointMax})
	equal(t, "C", s.committed.Committed, int64(0))

	for range 5 { // much is said, and little of it stays
		s.Send("u", "fast", `{"type":"RAW","event":"`+strings.Repeat("x", limit/4)+`"}`)
		s.all()
	}
	equal(t, "written after", s.run("fast").Raw.Events, int64(4))
}

// However events are split into batches and wherever the process dies, outgrown runs are cut alike.
func TestPartition_AnyBatchingAndAnyCrashCutOutgrownRunsAlike(t *testing.T) {
	const limit = 8 << 10
	seed := newSeed(t)
	cut, alone := 0, 0
	shown := func() bool { return cut > 0 && alone > 0 }
	for i := range untilShown(shown) {
		rng := rand.New(rand.NewPCG(seed+uint64(i), 2))
		want := newSim(t, func(c *Config) { c.RecordLimit = limit })
		runs := map[string]int{}
		for n := range 60 + rng.IntN(300) {
			want.Now = want.Now.Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
			thread := []string{"t1", "t2"}[rng.IntN(2)]
			id := fmt.Sprintf("%s-%d-%d", thread, runs[thread], rng.IntN(3))
			if rng.IntN(40) == 0 {
				runs[thread]++
			}
			say := func(value string) { want.Send(thread, []string{id, id, id, ""}[rng.IntN(4)], value) }
			switch rng.IntN(12) {
			case 0: // beside others, of which it may name one, with what they may have said
				said := userMessage("u", strings.Repeat("u", rng.IntN(5000)))
				for k := range rng.IntN(3) {
					said = assistantMessage(fmt.Sprint("m", k, "-", rng.IntN(7)), "s") + "," + said
				}
				parent := []string{"", fmt.Sprintf(`,"parentRunId":"%s-%d-%d"`, thread, runs[thread], rng.IntN(3))}[rng.IntN(2)]
				input := fmt.Sprintf(`{"threadId":%q,"runId":%q%s,"messages":[%s],"state":{},"tools":[],"context":[]}`, thread, id, parent, said)
				if rng.IntN(2) == 0 { // its first event may come much later
					want.Input(thread, id, input)
				} else {
					say(fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q%s,"input":%s}`, thread, id, parent, input))
				}
			case 1:
				say(fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":"t","runId":%q}`, id))
			case 2:
				say(fmt.Sprintf(`{"type":"MESSAGES_SNAPSHOT","messages":[ { "id":"m%d", "role":"assistant", "content":"s" } ]}`, rng.IntN(8)))
			case 3:
				say(fmt.Sprintf(`{"type":"STATE_SNAPSHOT","snapshot":{ "s" : %q }}`, strings.Repeat("s", rng.IntN(6000))))
			case 4:
				say(fmt.Sprintf(`{"type":"CUSTOM", "name":"x", "value": %q }`, strings.Repeat("x", rng.IntN(6000))))
			default:
				say(text(fmt.Sprint("m", rng.IntN(20), "-", n%7), strings.Repeat("x", rng.IntN(6000))))
			}
		}
		// One that stays open and is over the limit has the record of when it was not.
		for _, thread := range []string{"t1", "t2"} {
			for n := range 3 * (runs[thread] + 1) {
				id := fmt.Sprintf("%s-%d-%d", thread, n/3, n%3)
				want.Send(thread, id, finished(id))
			}
		}
		sameHowever(t, rng, want, func(c *Config) { c.RecordLimit = limit })
		for _, r := range want.latest() {
			if r.Cut != nil {
				cut++
			}
			alone += int(r.Stats.Anomalies[lineage.AnomalyPlacedAlone])
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed+uint64(i))
		}
	}
	t.Logf("%d runs were cut, %d placed alone", cut, alone)
	if !shown() {
		t.Error("no run has grown too large, or was too large beside another one")
	}
}

// However events are split into batches and wherever the process dies, large runs are placed alike: beside others, of which some are
// silent, with inputs that come before them, twice, or with their first events; and threads are erased.
func TestPartition_AnyBatchingAndAnyCrashPlaceLargeRunsAlike(t *testing.T) {
	const limit = 6 << 10
	seed := newSeed(t)
	alone, places := 0, 0
	shown := func() bool { return alone > 0 && places > 0 }
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
	t.Logf("%d runs were placed alone, %d records said a place alone", alone, places)
	if !shown() {
		t.Error("no run was too large")
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
	fill := func() string { return strings.Repeat("x", rng.IntN(4000)*rng.IntN(2)) }
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
		said = append(said, userMessage(fmt.Sprint("u", rng.IntN(5)), fill()))
		input := fmt.Sprintf(`{"threadId":%q,"runId":%q%s,"messages":[%s],"state":{ "n":%d},"tools":[],"context":[],"forwardedProps":%q}`,
			th.name, r.id, parent, strings.Join(said, ", "), rng.IntN(3), pick("", "", fill()))
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

// A run that begins beside one that may go on has its place in a record at once, of its own where what it holds is over the limit.
// So it comes out the same, wherever the process dies and however often it commits.
func TestPartition_PlacesALargeRunBesideAnOpenOneTheSameAgain(t *testing.T) {
	const k = 256
	const limit = 64 * k
	fill := func(bytes int) string { return strings.Repeat("x", bytes) }
	say := func(run string, bytes int) func(*sim) {
		return func(s *sim) { s.Send("t", run, text("m"+run, fill(bytes))) }
	}
	event := func(run, value string) func(*sim) { return func(s *sim) { s.Send("t", run, value) } }
	begin := func(run, parent string) func(*sim) {
		return event(run, fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t","runId":%q,"parentRunId":%q}`, run, parent))
	}
	input := func(run, more string, messages ...string) string {
		return fmt.Sprintf(`{"threadId":"t","runId":%q,"messages":[%s],"tools":[],"context":[]%s}`, run, strings.Join(messages, ","), more)
	}
	sidecar := func(run, more string, messages ...string) func(*sim) {
		return func(s *sim) { s.Input("t", run, input(run, more, messages...)) }
	}
	carried := func(run, more string, messages ...string) func(*sim) {
		return event(run, fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t","runId":%q,"input":%s}`, run, input(run, more, messages...)))
	}
	end := func(run string) func(*sim) { return event(run, finished(run)) }
	state := func(run, value string) func(*sim) {
		return event(run, `{"type":"STATE_SNAPSHOT","snapshot":`+value+`}`)
	}
	silence := func(s *sim) { s.Now = s.Now.Add(2 * s.cfg.IdleLimit) }
	copies := func(to ...string) string {
		return `{"op":"copy","from":"/a","path":"/` + strings.Join(to, `"},{"op":"copy","from":"/a","path":"/`) + `"}`
	}
	said := assistantMessage("mS", "x")
	S := []func(*sim){begin("S", ""), say("S", 1), state("S", `{"v":1}`)}
	goesOn := []func(*sim){say("S", 2), state("S", `{"v":2}`), end("S")}
	for name, c := range map[string]struct {
		steps  [][]func(*sim)
		parent string
		alone  int64
		taken  bool // the state of S as R began
	}{
		"it grows before it is written": {
			steps:  [][]func(*sim){S, {begin("R", "S"), say("R", 40*k), say("R", 40*k)}, goesOn},
			parent: "S", taken: true,
		},
		"its input has what the open one has said": {
			steps:  [][]func(*sim){S, {carried("R", "", said, userMessage("u", fill(50*k))), say("R", 1)}, goesOn},
			parent: "S", taken: true,
		},
		"its input came before": {
			steps:  [][]func(*sim){S, {sidecar("R", "", said, userMessage("u", fill(50*k))), begin("R", ""), say("R", 1)}, goesOn},
			parent: "S", taken: true,
		},
		"its input came before, and was written": {
			steps: [][]func(*sim){S, {sidecar("R", `,"state":{"own":1}`, said, userMessage("u", fill(24*k))), begin("R", "")},
				{say("R", 20*k), say("R", 20*k)}, goesOn},
			parent: "S",
		},
		"input and first event are a third each": {
			steps:  [][]func(*sim){S, {sidecar("R", "", said, userMessage("u", fill(22*k))), say("R", 22*k)}, goesOn},
			parent: "S", taken: true,
		},
		"a larger input was written, and replaced": {
			steps:  [][]func(*sim){S, {say("S", 50*k), sidecar("R", `,"forwardedProps":"`+fill(50*k)+`"`), sidecar("R", ""), begin("R", "S"), say("R", 30*k), say("R", 30*k)}, goesOn},
			parent: "S", taken: true,
		},
		"its input came twice": {
			steps:  [][]func(*sim){S, {sidecar("R", "", userMessage("u", fill(30*k))), sidecar("R", "", said, userMessage("u", fill(50*k))), begin("R", "")}, goesOn},
			parent: "S", taken: true,
		},
		"its first event makes more than it brings": {
			steps: [][]func(*sim){{begin("S", ""), state("S", `{"v":1,"a":"`+fill(9*k)+`"}`)},
				{silence, event("R", `{"type":"STATE_DELTA","delta":[`+copies("b", "c", "d", "e", "f", "g", "h")+`]}`)}, goesOn,
				{event("R", `{"type":"STATE_DELTA","delta":[{"op":"replace","path":"","value":{"v":1}}]}`)}},
			parent: "S", taken: true,
		},
		"its first event touches what its base has said": {
			steps: [][]func(*sim){{begin("G", ""), say("G", 40*k), end("G"), begin("S", "G"), say("S", 1)},
				{event("R", `{"type":"TEXT_MESSAGE_CHUNK","messageId":"mG","delta":"`+fill(40*k)+`"}`)}, goesOn},
			parent: "G",
		},
		"the open one is abandoned": {
			steps:  [][]func(*sim){S, {silence, carried("R", "", said, userMessage("u", fill(50*k))), say("R", 1)}, goesOn},
			parent: "S", taken: true,
		},
		"the open one was abandoned, and it names none": {
			steps:  [][]func(*sim){S, {silence, event("R", started("R")), say("R", 40*k), say("R", 40*k)}, goesOn},
			parent: "S", taken: true,
		},
		"the open one has said much": {
			steps:  [][]func(*sim){S, {say("S", 60*k), begin("R", "S"), say("R", 40*k)}, goesOn},
			parent: "S", alone: 1,
		},
		"its input and what the open one has said are much together": {
			steps:  [][]func(*sim){S, {say("S", 30*k), sidecar("R", "", userMessage("u", fill(30*k))), begin("R", "S"), say("R", 40*k)}, goesOn},
			parent: "S", alone: 1,
		},
		"of another run only the input has come": {
			steps: [][]func(*sim){S, {end("S"), sidecar("K", `,"parentRunId":"S"`), carried("R", `,"parentRunId":"S"`, userMessage("u", fill(50*k)))},
				{event("K", started("K")), say("K", 1)}},
			parent: "S", taken: true,
		},
		"it names one of which only the input has come": {
			steps: [][]func(*sim){S, {end("S"), sidecar("K", `,"parentRunId":"S"`), carried("R", `,"parentRunId":"K"`, userMessage("u", fill(50*k)))},
				{event("K", started("K")), say("K", 1)}},
		},
		"it gives a parent that it itself is, and one is spawned by it": {
			steps: [][]func(*sim){{event("W", `{"type":"RUN_STARTED","threadId":"t","runId":"W","parentRunId":"R"}`)},
				{carried("R", `,"parentRunId":"W"`, userMessage("u", fill(50*k)))}, goesOn},
			parent: "W",
		},
	} {
		t.Run(name, func(t *testing.T) {
			steps := slices.Concat(slices.Concat(c.steps...), []func(*sim){begin("last", "R"), say("R", 1), end("R"), end("last")})
			// Commits behind some of the steps, and dies behind one of them, before it has committed or behind that.
			fold := func(every, crash int, committed, newFolder bool) *sim {
				s := newSim(t, func(c *Config) { c.RecordLimit = limit })
				s.open(false)
				for i, step := range steps {
					step(s)
					s.feed(len(s.Events))
					if i == crash {
						if committed {
							s.commit(false)
						} else {
							_, err := s.part.collect(s.Now)
							s.check(err)
						}
						s.open(newFolder)
						s.feed(len(s.Events))
					}
					if i%every == every-1 {
						s.commit(true)
					}
				}
				s.finish()
				return s
			}
			want := fold(1, -1, false, false)
			r, last := want.run("R"), want.run("last")
			equal(t, "parent", r.ParentRunID, c.parent)
			equal(t, "placed alone", r.Stats.Anomalies[lineage.AnomalyPlacedAlone], c.alone)
			equal(t, "it has taken over the other's state", strings.Contains(string(r.State), `"v":1`) || r.Base == "S", c.taken)
			equal(t, "place of its child", []any{last.ParentRunID, last.Depth, last.RootRunID}, []any{"R", r.Depth + 1, r.RootRunID})
			for _, every := range []int{1, 3} {
				for crash := range steps {
					for _, how := range [][2]bool{{false, false}, {true, false}, {true, true}} {
						got := fold(every, crash, how[0], how[1])
						equal(t, fmt.Sprintf("records, committed at every %d, dying behind step %d (after its commit: %t, new folder: %t)", every, crash, how[0], how[1]), got.values(), want.values())
						got.checkHeads()
						got.checkTold()
					}
				}
			}
		})
	}
}

// What a run's end rests on is asked for, too, where its place came out of a record: whether its branch is written whole, and what for.
func TestPartition_EndsARunWhosePlaceWasWrittenAloneTheSame(t *testing.T) {
	const limit = 16 << 10
	fold := func(unload, crash, newFolder bool) *sim {
		s := newSim(t, func(c *Config) { c.RecordLimit, c.SnapshotBelow = limit, 0 })
		s.open(false)
		for i := range 5 {
			id := fmt.Sprint("B", i)
			s.Send("t", id, fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t","runId":%q,"input":{"threadId":"t","runId":%q,"messages":[%s],"tools":[],"context":[]}}`, id, id, userMessage(fmt.Sprint("u", i), "u")))
			s.Send("t", id, text("m"+id, strings.Repeat("x", 2<<10)))
			s.Send("t", id, finished(id))
		}
		s.Send("t", "S", started("S"))
		s.all()
		s.Send("t", "R", `{"type":"RUN_STARTED","threadId":"t","runId":"R","parentRunId":"B1"}`)
		s.Send("t", "R", text("own", "own"))
		s.Send("t", "R", `{"type":"STATE_SNAPSHOT","snapshot":{"v":"`+strings.Repeat("x", limit-200)+`"}}`)
		s.all()
		equal(t, "it has its place alone, and its base", []any{s.run("R").Open.Placed, s.run("R").Base}, []any{true, "B1"})
		if crash {
			s.open(newFolder)
		}
		if unload {
			s.Send("t", "S", text("mS", "x"))
			s.feed(1)
			s.check(s.part.threads["acme/t"].unload())
		}
		s.Send("t", "R", `{"type":"STATE_SNAPSHOT","snapshot":{"v":1}}`)
		s.Send("t", "R", finished("R"))
		s.all()
		return s
	}
	for _, unload := range []bool{false, true} {
		want := fold(unload, false, false)
		for _, newFolder := range []bool{false, true} {
			got := fold(unload, true, newFolder)
			equal(t, "records", got.values(), want.values())
			equal(t, "snapshots", got.snapshotValues(), want.snapshotValues())
		}
	}
}

// A run over the limit that is abandoned ends there, and where it had an input only, it is placed there: whatever else comes in the
// same transaction.
func TestPartition_EndsALargeRunWhereItIsAbandoned(t *testing.T) {
	const limit = 16 << 10
	much := strings.Repeat("x", limit-400)
	for name, script := range map[string]func(s *sim, between func()){
		"and it goes on": func(s *sim, between func()) {
			s.Send("t", "S", started("S"))
			s.Send("t", "S", text("m", much))
			s.Send("t", "S", text("m", much))
			between()
			s.silence(2 * s.cfg.IdleLimit)
			between()
			s.Send("t", "S", text("m2", "back"))
			s.Send("t", "S", finished("S"))
		},
		"and another one goes on from it": func(s *sim, between func()) {
			s.Send("t", "S", started("S"))
			s.Send("t", "S", text("m", much))
			s.Send("t", "S", text("m", much))
			between()
			s.silence(2 * s.cfg.IdleLimit)
			between()
			s.Send("t", "R", `{"type":"RUN_STARTED","threadId":"t","runId":"R","parentRunId":"S"}`)
			s.Send("t", "R", finished("R"))
		},
		"of which only an input has come": func(s *sim, between func()) {
			s.Input("t", "S", fmt.Sprintf(`{"threadId":"t","runId":"S","messages":[%s,%s],"tools":[],"context":[]}`, assistantMessage("mK", "x"), userMessage("u", much)))
			between()
			s.silence(2 * s.cfg.IdleLimit)
			s.Send("t", "K", `{"type":"RUN_STARTED","threadId":"t","runId":"K","parentRunId":"none"}`)
			between()
			s.Send("t", "K", text("mK", "x"))
			s.Send("t", "K", finished("K"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var values []map[string]string
			var letters [][]string
			for _, cut := range []bool{false, true} {
				s := newSim(t, func(c *Config) { c.RecordLimit = limit })
				script(s, func() {
					if cut {
						s.all()
					}
				})
				s.all()
				equal(t, "status", s.run("S").Status, record.StatusAbandoned)
				equal(t, "it has ended for good", s.run("S").Open == nil, true)
				values, letters = append(values, s.values()), append(letters, s.letters())
			}
			equal(t, "records in more transactions", values[1], values[0])
			equal(t, "letters", letters[1], letters[0])
		})
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
	s.Send("t", "R", `{"type":"RUN_STARTED","threadId":"t","runId":"R","parentRunId":"S"}`)
	for range 2 {
		s.Send("t", "R", text("gone", strings.Repeat("x", limit-200)))
	}
	s.all()
	placed := s.run("R")
	equal(t, "its record", []any{placed.Open.Placed, placed.Open.Pending, placed.Raw.First, placed.Raw.Next, placed.Raw.Events}, []any{true, true, int64(3), int64(3), int64(0)})
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
