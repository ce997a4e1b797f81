package partition

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compactor/partition/partitiontest"
	"github.com/skeinhq/skein/pkg/record"
)

// of makes an event another tenant's.
func of(tenant string, m *kgo.Record) {
	m.Key = []byte(tenant + strings.TrimPrefix(string(m.Key), "acme"))
}

// scarce has little room for open runs.
func scarce(c *Config) { c.RecordLimit, c.OpenRunBytes = 64<<10, 1<<20 }

// Where runs hold more than a process may, those of the tenant that holds most are cut, the largest first. Their events go on being counted
// and hashed, their end is the agent's, and no event becomes a dead letter. Others lose nothing.
func TestPartition_CutsTheLargestRunsOfTheTenantThatHoldsMost(t *testing.T) {
	const runs, size = 12, 120 << 10
	s := newSim(t, scarce)
	s.cuts = true
	s.open(false)
	id := func(i int) string { return fmt.Sprint("greedy", i) }
	play := func(s *sim, send func(step string)) {
		for _, step := range []string{"begin", "more", "end"} {
			send(step)
		}
	}
	script := func(s *sim, after func()) {
		play(s, func(step string) {
			switch step {
			case "begin":
				of("honest", s.Send("h", "h", started("h")))
				for range 2 {
					of("honest", s.Send("h", "h", text("m", strings.Repeat("h", size/4))))
				}
				for i := range runs {
					s.Send("t"+id(i), id(i), started(id(i)))
					s.Send("t"+id(i), id(i), text("small", "kept"))
					for range 4 {
						s.Send("t"+id(i), id(i), text("large", strings.Repeat("g", size/4)))
					}
					after()
				}
			case "more":
				for i := range runs {
					s.Send("t"+id(i), id(i), text("large", strings.Repeat("g", 1000)))
					s.Send("t"+id(i), id(i), custom("c"))
					s.Send("t"+id(i), id(i), fmt.Sprintf(`{"type":"MADE_UP_%d"}`, i))
				}
				of("honest", s.Send("h", "h", text("m", "!")))
				after()
			case "end":
				for i := range runs {
					s.Send("t"+id(i), id(i), finished(id(i)))
				}
				of("honest", s.Send("h", "h", finished("h")))
				after()
			}
		})
	}
	script(s, func() {
		s.all()
		if n := s.part.runs.bytes; n > s.cfg.OpenRunBytes {
			t.Errorf("after the commit runs hold %d bytes, %d are allowed", n, s.cfg.OpenRunBytes)
		}
	})
	whole := newSim(t, func(c *Config) { c.RecordLimit = 64 << 10 })
	whole.open(false)
	script(whole, whole.all)

	equal(t, "dead letters", s.letters(), []string{})
	equal(t, "the honest tenant's record", s.values()["honest/h/h"], whole.values()["honest/h/h"])
	cut := 0
	for i := range runs {
		got, want := s.run(id(i)), whole.run(id(i))
		equal(t, "hash", got.Raw.SHA256, want.Raw.SHA256)
		equal(t, "events", got.Raw.Events, want.Raw.Events)
		equal(t, "status", got.Status, record.StatusFinished)
		equal(t, "terminal", string(got.Terminal), string(want.Terminal))
		equal(t, "small message", string(got.Messages[0].Raw), assistantMessage("small", "kept"))
		equal(t, "truncated", got.Truncated, true)
		if got.Cut == nil {
			continue
		}
		cut++
		equal(t, "events of the contents", got.Cut.Events, int64(6))
		equal(t, "text events", got.Stats.Events["TEXT_MESSAGE_CHUNK"], want.Stats.Events["TEXT_MESSAGE_CHUNK"])
		equal(t, "custom events", got.Stats.Events["CUSTOM"], int64(1))
		equal(t, "made-up types", got.Stats.Events[fmt.Sprint("MADE_UP_", i)], int64(0))
		if raw := string(got.Messages[1].Raw); !strings.Contains(raw, "skeinTruncated") || strings.Contains(raw, "ggg") {
			t.Errorf("the large message is %.200s", raw)
		}
	}
	if cut < 3 || cut == runs {
		t.Errorf("%d runs are cut, want some", cut)
	}
	s.isProved(rand.New(rand.NewPCG(1, 2)), &tally{})
}

// A run that was cut goes on the same from memory and from its record. The times of its tool calls go with its contents.
func TestPartition_GoesOnFromACutRecordTheSame(t *testing.T) {
	play := func(reopen bool) string {
		s := newSim(t, scarce)
		s.cuts = true
		s.open(false)
		for i := range 12 {
			run := fmt.Sprint("r", i)
			s.Send("t"+run, run, started(run))
			s.Send("t"+run, run, `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n"}`)
			for range 4 {
				s.Send("t"+run, run, text("m", strings.Repeat("x", 30<<10)))
			}
			s.Send("t"+run, run, `{"type":"STATE_SNAPSHOT","snapshot":{"a":1}}`)
		}
		s.all()
		if s.part.runs.byKey["acme/tr0/r0"].cutAt == nil {
			t.Fatal("the run is not cut")
		}
		if reopen {
			s.open(true)
		}
		for _, value := range []string{custom("c"), text("m", "more"), `{"type":"TOOL_CALL_RESULT","messageId":"r","toolCallId":"c","content":"x"}`, `{"type":"STATE_DELTA","delta":[{"op":"add","path":"/b","value":2}]}`, finished("r0")} {
			s.Send("tr0", "r0", value, seq(len(s.Events)))
		}
		s.all()
		equal(t, "tool calls with times", len(s.run("r0").Stats.ToolCallTimes), 0)
		return s.values()["acme/tr0/r0"]
	}
	equal(t, "record", play(true), play(false))
}

// One that has nothing but an input, which is over the record limit, ends.
func TestPartition_EndsALargeInputWhereMemoryIsScarce(t *testing.T) {
	s := newSim(t, scarce)
	s.cuts = true
	s.open(false)
	for i := range 32 {
		run := fmt.Sprint("r", i)
		s.Input("t"+run, run, `{"threadId":"t","runId":"`+run+`","messages":[`+userMessage("u", strings.Repeat("x", 63<<10))+`],"tools":[],"context":[],"forwardedProps":"`+strings.Repeat("y", 900)+`"}`)
	}
	s.all()
	for range 4 { // they are silent, are tried to be written, and are over the limit
		s.Now = s.Now.Add(busyFor)
		s.all()
	}
	if n := s.part.runs.bytes; n > s.cfg.OpenRunBytes {
		t.Errorf("runs hold %d bytes, %d are allowed", n, s.cfg.OpenRunBytes)
	}
	ended := 0
	for _, r := range s.latest() {
		if r.Closed {
			ended++
			equal(t, "truncated", r.Truncated, true)
			if !strings.Contains(string(r.Terminal), codeOutgrown) {
				t.Errorf("its end is %s", r.Terminal)
			}
		}
	}
	if ended == 0 {
		t.Error("none has ended")
	}
}

// A process that reads events again with less memory, or a lower record limit, ends no run before it has read all of it.
func TestPartition_EndsNoRunWhileItReadsAgain(t *testing.T) {
	t.Run("a large input", func(t *testing.T) {
		s := newSim(t, scarce)
		s.cfg.OpenRunBytes = 64 << 20
		const runs = 32
		for _, value := range []string{"", custom("b"), custom("c")} {
			for i := range runs {
				run := fmt.Sprint("r", i)
				if value == "" {
					s.Input("t"+run, run, `{"threadId":"t","runId":"`+run+`","messages":[`+userMessage("u", strings.Repeat("x", 64<<10))+`],"tools":[],"context":[]}`)
				} else {
					s.Send("t"+run, run, value)
				}
			}
		}
		s.all()
		equal(t, "C", s.committed.Committed, int64(0))
		for i := range runs {
			s.Send(fmt.Sprint("tr", i), fmt.Sprint("r", i), finished("r"))
		}
		s.cfg.OpenRunBytes, s.cuts = 1<<20, true
		s.open(false)
		s.feed(runs)
		for range 4 {
			s.Now = s.Now.Add(busyFor)
			s.commit(true)
		}
		s.finish()
		s.checkNothingLost()
	})
	t.Run("an expired run", func(t *testing.T) {
		s := newSim(t, func(c *Config) { c.RecordLimit = 24 << 10 })
		large := strings.Repeat("x", 20<<10)
		s.Send("t", "r", text("m", large))
		s.all()
		s.Now = s.Now.Add(2 * s.cfg.IdleLimit)
		s.Send("u", "other", started("other"))
		s.all()
		s.Send("t", "r", "malformed")
		s.Send("t", "r", text("m", large))
		s.all()
		s.cfg.RecordLimit = 6 << 10
		s.open(false)
		s.feed(2)
		s.Now = s.Now.Add(s.cfg.CheckpointMax)
		s.commit(true)
		s.finish()
		s.checkNothingLost()
	})
}

// However events are split into batches and wherever the process dies, what is cut is bounded, ends once, and its counts, hash and
// end are those of its events. What is not cut is the same record.
func TestPartition_AnyBatchingAndAnyCrashCutRunsAlike(t *testing.T) {
	seed := newSeed(t)
	cuts := 0
	shown := func() bool { return cuts > 0 }
	for i := range untilShown(shown) {
		seed := seed + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 2))
			want := newSim(t, func(c *Config) { c.RecordLimit = 64 << 10 })
			large(want.Script, rng)
			end := want.Now
			want.open(false)
			want.finish()

			got := newSim(t, scarce)
			got.Events, got.Now, got.cuts = want.Events, end, true
			got.open(false)
			for crashes := 0; got.committed.Processed < int64(len(got.Events)); {
				got.feed(1)
				for n := rng.IntN(20); n > 0 && got.part.runs.bytes <= got.cfg.OpenRunBytes; n-- {
					got.feed(1)
				}
				if most := got.cfg.OpenRunBytes + got.cfg.RecordLimit + 64<<10; got.part.runs.bytes > most {
					t.Fatalf("runs hold %d bytes, want %d at most", got.part.runs.bytes, most)
				}
				switch {
				case crashes < 20 && rng.IntN(3) == 0:
					if err := CutLargest([]*Processor{got.part}, got.Now); err != nil {
						t.Fatal(err)
					}
					if _, err := got.part.collect(got.Now); err != nil {
						t.Fatal(err)
					}
					got.open(rng.IntN(3) == 0)
					crashes++
				case crashes < 20 && rng.IntN(4) == 0:
					got.commit(false)
					got.open(rng.IntN(3) == 0)
					crashes++
				default:
					got.commit(true)
				}
			}
			got.finish()
			a, b := want.latest(), got.latest()
			values, cutValues := want.values(), got.values()
			equal(t, "runs", len(b), len(a))
			for id, r := range a {
				g := b[id]
				if g == nil {
					t.Errorf("%s has no record", id)
					continue
				}
				if g.Cut == nil && r.ParentRunID == "" && !g.Closed && g.Status != record.StatusAbandoned { // and it goes on from none that is
					key, err := record.RunKey(r.Tenant, r.ThreadID, id)
					got.check(err)
					equal(t, "record of "+id, cutValues[key], values[key])
					continue
				}
				if g.Cut != nil {
					cuts++
				}
				equal(t, "hash of "+id, g.Raw.SHA256, r.Raw.SHA256)
				equal(t, "events of "+id, g.Raw.Events, r.Raw.Events)
				equal(t, "next of "+id, g.Raw.Next, r.Raw.Next)
				equal(t, "end of "+id, string(g.Status), string(r.Status))
			}
			equal(t, "dead letters", got.letters(), want.letters())
			got.checkTold()
			got.checkHeads()
			got.isProved(rng, &tally{}) // with what was cut said to be unproved
		})
		if t.Failed() {
			return
		}
	}
	if !shown() {
		t.Error("no history has a run that is cut")
	}
}

// large appends events of a few runs, each the only one of its thread, which hold up to some record limits.
func large(s *partitiontest.Script, rng *rand.Rand) {
	const runs = 12
	left := make([]int, runs) // bytes that a run may yet have: at four limits it would end
	for i := range runs {
		left[i] = 200 << 10
	}
	for range 200 {
		i := rng.IntN(runs)
		run, thread := fmt.Sprint("r", i), fmt.Sprint("t", i)
		var value string
		switch size := rng.IntN(40 << 10); rng.IntN(8) {
		case 0:
			value = started(run)
		case 1:
			value = fmt.Sprintf(`{"type":"STATE_SNAPSHOT","snapshot":{"a":%q}}`, strings.Repeat("s", size/4))
			left[i] -= size / 4
		case 2:
			value = `{"type":"STATE_DELTA","delta":[{"op":"add","path":"/b","value":1}]}`
		case 3:
			value = custom("c")
		case 4:
			value = `{"type":"TOOL_CALL_CHUNK","toolCallId":"c","toolCallName":"n","delta":"{}"}`
		default:
			value = text(fmt.Sprint("m", rng.IntN(3)), strings.Repeat("x", size))
			left[i] -= size
		}
		if left[i] < 0 {
			value = custom("d")
		}
		s.Send(thread, run, value)
		if rng.IntN(100) == 0 {
			s.Send(thread, run, finished(run))
		}
	}
	for i := range runs {
		s.Send(fmt.Sprint("t", i), fmt.Sprint("r", i), finished(fmt.Sprint("r", i)))
	}
}
