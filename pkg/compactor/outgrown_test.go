package compactor

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/shadow"
)

// A run that grows beyond four times the record limit is ended there, with a record that says so; it leaves memory, and
// the commit moves on. What comes behind is handled as behind any end, and wherever the process dies, it all
// comes out the same.
func TestPartition_EndsARunThatHasOutgrownItsRecord(t *testing.T) {
	const limit, piece = 64 << 10, 10 << 10
	script := func(t *testing.T) *sim {
		s := newSim(t, func(c *Config) { c.RecordLimit = limit })
		s.turn("first", "m1")
		s.send("t", "large", started("large")) // 3
		for i := range 40 {
			s.send("t", "large", text(fmt.Sprint("m", i/8), strings.Repeat("x", piece)))
		}
		s.send("t", "large", finished("large"))
		s.turn("next", "m2")
		return s
	}
	s := script(t)
	s.open(false)
	most := 0
	for s.read < len(s.events) {
		s.feed(1)
		for _, r := range s.part.runs {
			most = max(most, int(r.said))
		}
	}
	if most > 5*limit+piece {
		t.Errorf("a run was in memory with %d bytes, the limit is %d", most, limit)
	}
	s.commit(true)
	equal(t, "C", s.settled.committedOffset, int64(len(s.events)))
	large := s.run("large")
	equal(t, "record", []any{large.Status, large.Synthetic, large.Truncated, large.Open == nil}, []any{record.StatusAbandoned, true, true, true})
	equal(t, "code", string(agui.Lookup(large.Terminal, "code")), `"skein-outgrown"`)
	if e := large.Raw.Events; e < 4*limit/piece || e > 5*limit/piece+1 {
		t.Errorf("it ended with event %d", e)
	}
	letters := int64(len(s.letters()))
	equal(t, "events of it in dead letters and one end", letters+1, 42-large.Raw.Events)
	next := s.run("next")
	equal(t, "place of the next run", []any{next.ParentRunID, next.ParentBy, next.Base}, []any{"large", record.ParentLatest, "large"})
	s.checkHeads()
	s.checkTold()
	want, wantLetters := s.values(), s.letters()

	records := []*record.Run{s.run("first"), large, next}
	again := shadow.NewThread(records, 0)
	for _, m := range s.events {
		s.check(again.Take(m))
	}
	anew, err := again.Anew()
	if err != nil || len(anew) > 0 {
		t.Errorf("folded again, %d records come out otherwise, %v", len(anew), err)
	}

	last := int(large.Raw.Next)
	for _, at := range []int{last - 1, last, last + 1} {
		for _, told := range []string{"dies before the commit", "dies behind it", "hears of it"} {
			for _, newFolder := range []bool{false, true} {
				s := script(t)
				s.open(false)
				s.feed(at)
				if told == "dies before the commit" {
					_, err := s.part.collect(s.now)
					s.check(err)
				} else {
					s.commit(told == "hears of it")
				}
				s.open(newFolder)
				s.finish()
				equal(t, fmt.Sprintf("records where it %s at %d, new folder %t", told, at-last, newFolder), s.values(), want)
				equal(t, "letters", s.letters(), wantLetters)
			}
		}
	}
}

// What counts is what a run holds, not what it has said; a part counts for more than its bytes.
func TestPartition_EndsNoRunThatHoldsLittle(t *testing.T) {
	const limit = 64 << 10
	much := strings.Repeat("x", 20<<10)
	for name, c := range map[string]struct {
		say   func(i int) string
		times int
		ended bool
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
			s.send("t", "r", started("r"))
			for i := range c.times {
				s.send("t", "r", c.say(i))
			}
			s.open(false)
			s.feed(len(s.events))
			equal(t, "ended", len(s.part.runs) == 0, c.ended)
		})
	}
}

// The limit is lowered while a run is open that was far from the old one. What it has said is taken in; it is ended behind that,
// at the next limit that it crosses, and wherever the process dies then, it comes out the same.
func TestPartition_EndsNoRunByALowerLimitThatItWasNotHeldTo(t *testing.T) {
	const before, behind = 41, 30
	played := func(t *testing.T, crash int) *sim {
		s := newSim(t, func(c *Config) { c.RecordLimit = 128 << 10 })
		s.send("t", "r", started("r"))
		for i := range before - 1 {
			s.send("t", "r", text(fmt.Sprint("m", i), strings.Repeat("x", 10<<10)))
		}
		s.all()
		equal(t, "C", s.settled.committedOffset, int64(0))
		s.cfg.RecordLimit = 64 << 10
		s.open(false)
		s.all()
		equal(t, "events behind the restart", s.part.runs["acme/t/r"].tally.Events, int64(before))
		for i := range behind {
			if i == crash {
				s.open(true)
			}
			s.send("t", "r", text(fmt.Sprint("n", i), strings.Repeat("x", 10<<10)))
			s.all()
		}
		return s
	}
	want := played(t, -1)
	r := want.run("r")
	equal(t, "code", string(agui.Lookup(r.Terminal, "code")), `"skein-outgrown"`)
	if e := r.Raw.Events; e <= before || e > before+7 {
		t.Errorf("it ended with event %d", e)
	}
	equal(t, "events in the record and in dead letters", r.Raw.Events+int64(len(want.letters())), int64(before+behind))
	for crash := range 10 {
		got := played(t, crash)
		equal(t, fmt.Sprintf("records where it dies before event %d", crash), got.values(), want.values())
		equal(t, "letters", got.letters(), want.letters())
	}
}

// A run over the limit is not written out over and over to find that it is: as if it had been written, that waits until
// it has grown by much, or for five minutes. One that says much within seconds is written all the same.
func TestPartition_TriesARecordOverTheLimitNowAndThen(t *testing.T) {
	const limit = 64 << 10
	s := newSim(t, func(c *Config) { c.RecordLimit = limit })
	s.send("t", "r", started("r"))
	for range 4 {
		s.send("t", "r", text("m", strings.Repeat("x", limit/2)))
	}
	s.all()
	tried := []time.Duration{}
	began := s.now
	for range 40 {
		s.now = s.now.Add(15 * time.Second)
		s.send("t", "r", text("m", "x"))
		s.all()
		if r := s.part.runs["acme/t/r"]; r.savedAt.Equal(s.now) {
			tried = append(tried, s.now.Sub(began))
		}
	}
	equal(t, "tried after", tried, []time.Duration{s.cfg.CheckpointMax, 2 * s.cfg.CheckpointMax})
	equal(t, "C", s.settled.committedOffset, int64(0))

	for range 5 { // much is said, and little of it stays
		s.send("u", "fast", `{"type":"RAW","event":"`+strings.Repeat("x", limit/4)+`"}`)
		s.all()
	}
	equal(t, "written after", s.run("fast").Raw.Events, int64(4))
}

// However events are split into batches and wherever the process dies, outgrown runs end alike.
func TestPartition_AnyBatchingAndAnyCrashEndOutgrownRunsAlike(t *testing.T) {
	const limit = 4 << 10
	seed := newSeed(t)
	ended, alone := 0, 0
	for i := range *roundFlag {
		rng := rand.New(rand.NewPCG(seed+uint64(i), 2))
		want := newSim(t, func(c *Config) { c.RecordLimit = limit })
		runs := map[string]int{}
		for n := range 60 + rng.IntN(300) {
			want.now = want.now.Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
			thread := []string{"t1", "t2"}[rng.IntN(2)]
			id := fmt.Sprintf("%s-%d-%d", thread, runs[thread], rng.IntN(3))
			if rng.IntN(40) == 0 {
				runs[thread]++
			}
			say := func(value string) { want.send(thread, []string{id, id, id, ""}[rng.IntN(4)], value) }
			switch rng.IntN(12) {
			case 0: // beside others, of which it may name one, with what they may have said
				said := userMessage("u", strings.Repeat("u", rng.IntN(2500)))
				for k := range rng.IntN(3) {
					said = assistantMessage(fmt.Sprint("m", k, "-", rng.IntN(7)), "s") + "," + said
				}
				parent := []string{"", fmt.Sprintf(`,"parentRunId":"%s-%d-%d"`, thread, runs[thread], rng.IntN(3))}[rng.IntN(2)]
				say(fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q%s,"input":{"threadId":%q,"runId":%q,"messages":[%s],"state":{},"tools":[],"context":[]}}`,
					thread, id, parent, thread, id, said))
			case 1:
				say(fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":"t","runId":%q}`, id))
			case 2:
				say(fmt.Sprintf(`{"type":"MESSAGES_SNAPSHOT","messages":[ { "id":"m%d", "role":"assistant", "content":"s" } ]}`, rng.IntN(8)))
			case 3:
				say(fmt.Sprintf(`{"type":"STATE_SNAPSHOT","snapshot":{ "s" : %q }}`, strings.Repeat("s", rng.IntN(3000))))
			case 4:
				say(fmt.Sprintf(`{"type":"CUSTOM", "name":"x", "value": %q }`, strings.Repeat("x", rng.IntN(3000))))
			default:
				say(text(fmt.Sprint("m", rng.IntN(20), "-", n%7), strings.Repeat("x", rng.IntN(3000))))
			}
		}
		// One that stays open and is over the limit has the record of when it was not.
		for _, thread := range []string{"t1", "t2"} {
			for n := range 3 * (runs[thread] + 1) {
				id := fmt.Sprintf("%s-%d-%d", thread, n/3, n%3)
				want.send(thread, id, finished(id))
			}
		}
		sameHowever(t, rng, want, func(c *Config) { c.RecordLimit = limit })
		for _, r := range want.latest() {
			if strings.Contains(string(r.Terminal), codeOutgrown) {
				ended++
			}
			alone += int(r.Stats.Anomalies[lineage.AnomalyPlacedAlone])
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed+uint64(i))
		}
	}
	t.Logf("%d runs were ended, %d placed alone", ended, alone)
	if ended == 0 || alone == 0 {
		t.Error("no run has grown too large, or was too large beside another one")
	}
}

// A run that begins beside an open one has its place in a record at once. Where that would be over the limit, it is written
// as the run's first event left it, or the run begins without what the open one has said: it never rests on what nobody
// could know again.
func TestPartition_PlacesALargeRunBesideAnOpenOneTheSameAgain(t *testing.T) {
	const limit = 64 << 10
	part := func(id string, size int) string { return text(id, strings.Repeat("x", size)) }
	for name, c := range map[string]struct {
		said   int // by the open run
		run    []string
		parent string
		alone  int64
		silent bool // before it begins, so that the other is abandoned
	}{
		"it grows before it is written": {
			said: 1, parent: "S",
			run: []string{`{"type":"RUN_STARTED","threadId":"t","runId":"R","parentRunId":"S"}`, part("mR", 40<<10), part("mR", 40<<10)},
		},
		"its input is large, and has what the open one has said": {
			said: 1, alone: 1,
			run: []string{`{"type":"RUN_STARTED","threadId":"t","runId":"R","input":{"threadId":"t","runId":"R","messages":[` +
				assistantMessage("mS", "x") + "," + userMessage("u", strings.Repeat("y", 50<<10)) + `],"tools":[],"context":[],"state":{}}}`, part("mR", 1)},
		},
		"its input is large, and it names the open one": {
			said: 1, parent: "S", alone: 1,
			run: []string{`{"type":"RUN_STARTED","threadId":"t","runId":"R","parentRunId":"S","input":{"threadId":"t","runId":"R","messages":[` +
				userMessage("u", strings.Repeat("y", 26<<10)) + `],"tools":[],"context":[]}}`, part("mR", 1)},
		},
		"its input is large, and has what an abandoned one has said": {
			said: 1, alone: 1, silent: true,
			run: []string{`{"type":"RUN_STARTED","threadId":"t","runId":"R","input":{"threadId":"t","runId":"R","messages":[` +
				assistantMessage("mS", "x") + "," + userMessage("u", strings.Repeat("y", 50<<10)) + `],"tools":[],"context":[],"state":{}}}`, part("mR", 1)},
		},
		"an abandoned one goes on, and it grows": {
			said: 1, parent: "S", silent: true,
			run: []string{`{"type":"RUN_STARTED","threadId":"t","runId":"R"}`, part("mR", 40<<10), part("mR", 40<<10)},
		},
		"the open one has said much": {
			said: 60 << 10, parent: "S", alone: 1,
			run: []string{`{"type":"RUN_STARTED","threadId":"t","runId":"R","parentRunId":"S"}`, part("mR", 40<<10)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var records []map[string]string
			for _, crash := range []bool{false, true} {
				s := newSim(t, func(c *Config) { c.RecordLimit = limit })
				s.open(false)
				s.send("t", "S", started("S"))
				s.send("t", "S", part("mS", c.said))
				s.send("t", "S", `{"type":"STATE_SNAPSHOT","snapshot":{"v":1}}`)
				if c.silent {
					s.all()
					s.now = s.now.Add(2 * s.cfg.IdleLimit)
				}
				for _, value := range c.run {
					s.send("t", "R", value)
				}
				s.all()
				s.send("t", "S", text("mS", " two"))
				s.send("t", "S", `{"type":"STATE_SNAPSHOT","snapshot":{"v":2}}`)
				s.send("t", "S", finished("S"))
				s.send("t", "K", `{"type":"RUN_STARTED","threadId":"t","runId":"K","parentRunId":"R"}`)
				s.all()
				if crash {
					s.open(false)
				}
				s.send("t", "R", finished("R"))
				s.send("t", "K", finished("K"))
				s.all()
				r, k := s.run("R"), s.run("K")
				equal(t, "parent", r.ParentRunID, c.parent)
				equal(t, "placed alone", r.Stats.Anomalies[lineage.AnomalyPlacedAlone], c.alone)
				if c.parent != "" {
					equal(t, "it has taken over the other's state", strings.Contains(string(r.State), `"v"`), c.alone == 0)
				}
				equal(t, "place of its child", []any{k.ParentRunID, k.Depth, k.RootRunID}, []any{"R", r.Depth + 1, r.RootRunID})
				s.checkHeads()
				records = append(records, s.values())
			}
			equal(t, "records after a crash", records[1], records[0])
		})
	}
}

// An outgrown run is told of once, in the log and in the metrics.
func TestService_TellsOfAnOutgrownRun(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		m := w.join("a", t.TempDir(), func(c *Config) { c.RecordLimit = 64 << 10 })
		w.script.send("t", "large", started("large"))
		for i := range 10 {
			w.script.send("t", "large", text(fmt.Sprint("m", i), strings.Repeat("x", 50<<10)))
		}
		w.publish()
		w.decided()
		const line = `level=WARN msg="run is ended: it has grown too large" tenant=acme thread_id=t run_id=large partition=0 bytes=`
		equal(t, "lines", strings.Count(m.log.String(), line), 1)
		equal(t, "records", testutil.ToFloat64(m.metrics.Records.WithLabelValues(outputOutgrown)), 1.0)
		equal(t, "runs", testutil.ToFloat64(m.metrics.Runs.WithLabelValues(string(record.StatusAbandoned))), 1.0)
	})
}
