package compactor

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

// closing is how long a run that falls silent may go on.
func (s *sim) closing() time.Duration { return s.cfg.IdleLimit * closeAfter }

// silence lets time pass, which another thread's event tells.
func (s *sim) silence(d time.Duration) {
	s.tb.Helper()
	s.now = s.now.Add(d)
	id := fmt.Sprint("at", len(s.events))
	s.send("elsewhere", id, started(id))
	s.send("elsewhere", id, finished(id))
}

// openKeys are the runs that the local store has as not sealed.
func (s *sim) openKeys() []string {
	open, err := s.store.openRuns()
	s.check(err)
	keys := keysOf(open)
	slices.Sort(keys)
	return keys
}

// The ways in which the time comes at which a run is closed.
var waysToClose = map[string]func(s *sim, d time.Duration){
	"by a transaction":               func(s *sim, d time.Duration) { s.silence(d); s.all() },
	"by the thread's next event":     func(s *sim, d time.Duration) { s.now = s.now.Add(d) },
	"in one go with its abandonment": func(s *sim, d time.Duration) { s.silence(d) },
	"by a process that comes later":  func(s *sim, d time.Duration) { s.silence(d); s.all(); s.open(true) },
}

// A run of which nothing comes for a week is closed. What comes then is handled as behind any end.
func TestPartition_ClosesWhatStaysAbandoned(t *testing.T) {
	for way, passes := range waysToClose {
		for _, abandoned := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, abandoned before: %t", way, abandoned), func(t *testing.T) {
				s := newSim(t, nil)
				s.turn("r0", "m0")
				s.send("t", "r", started("r"))
				s.send("t", "r", text("m", "a"))
				s.all()
				if abandoned {
					s.silence(s.cfg.IdleLimit)
					s.all()
					equal(t, "status", s.run("r").Status, record.StatusAbandoned)
					equal(t, "not sealed", s.openKeys(), []string{"acme/t/r"})
					passes(s, s.closing()-s.cfg.IdleLimit)
				} else {
					passes(s, s.closing())
				}
				late := s.send("t", "r", text("m", "late"))
				s.send("t", "", text("m", "nobody's"))
				s.all()
				r := s.run("r")
				equal(t, "status, synthetic, closed, not open", []any{r.Status, r.Synthetic, r.Closed, r.Open == nil}, []any{record.StatusAbandoned, true, true, true})
				equal(t, "code", string(agui.Lookup(r.Terminal, "code")), `"`+codeAbandoned+`"`)
				equal(t, "dead letters", s.letters(), []string{fmt.Sprintf("0:%d after-terminal", late.Offset), fmt.Sprintf("0:%d no-run", late.Offset+1)})
				equal(t, "not sealed", s.openKeys(), []string{})
				equal(t, "open in its thread", len(s.part.threads["acme/t"].open), 0)
				equal(t, "waited for", []int{len(s.part.silent), len(s.part.abandoned)}, []int{0, 0})
				equal(t, "C", s.settled.committedOffset, int64(len(s.events)))
				messages, _ := s.history("r")
				for key, m := range s.snapshots() {
					if strings.HasPrefix(key, "acme/t/") {
						equal(t, "the run that a snapshot is of", header(m, record.HeaderRunID), "r")
					}
				}
				s.checkHeads()

				s.open(true)
				s.send("t", "r", started("r"))
				s.send("t", "r", text("m2", "b"))
				s.send("t", "r", finished("r"))
				s.all()
				again := s.run("r~2")
				equal(t, "the id used again", []any{again.GivenRunID, again.ParentRunID, again.Base}, []any{"r", "r", "r"})
				after, _ := s.history("r")
				equal(t, "the history of the closed one", after, messages)
			})
		}
	}
}

// Until then it goes on with the next event.
func TestPartition_LetsAnAbandonedRunGoOnUntilItIsClosed(t *testing.T) {
	for way, passes := range waysToClose {
		t.Run(way, func(t *testing.T) {
			s := newSim(t, nil)
			s.send("t", "r", started("r"))
			s.send("t", "r", text("m", "a"))
			s.all()
			s.silence(s.cfg.IdleLimit)
			s.all()
			passes(s, s.closing()-s.cfg.IdleLimit-time.Second)
			s.send("t", "r", text("m", "b"))
			s.all()
			equal(t, "status", s.run("r").Status, record.StatusRunning)
			equal(t, "waited for", []int{len(s.part.silent), len(s.part.abandoned)}, []int{1, 0})
			s.silence(s.closing() - time.Second)
			s.all()
			equal(t, "status once it is silent again", s.run("r").Status, record.StatusAbandoned)
			s.send("t", "r", finished("r"))
			s.all()
			equal(t, "status", s.run("r").Status, record.StatusFinished)
			messages, _ := s.history("r")
			equal(t, "history", messages, `[`+assistantMessage("m", "ab")+`]`)
		})
	}
}

// A run of which only an input has come is placed when it is closed; another input of its id is another run's.
func TestPartition_ClosesARunThatHasOnlyAnInput(t *testing.T) {
	for way, passes := range waysToClose {
		t.Run(way, func(t *testing.T) {
			input := fmt.Sprintf(`{"threadId":"t","runId":"r","messages":[%s,%s],"tools":[],"context":[]}`,
				assistantMessage("m1", "answer m1"), userMessage("u", "and?"))
			s := newSim(t, nil)
			s.turn("first", "m1")
			s.input("t", "r", input)
			s.all()
			passes(s, s.closing())
			s.input("t", "r", input)
			s.send("t", "r", started("r"))
			s.send("t", "r", finished("r"))
			s.all()
			r, again := s.run("r"), s.run("r~2")
			equal(t, "closed", []any{r.Status, r.Closed, r.InputOnly(), r.Open == nil}, []any{record.StatusAbandoned, true, true, true})
			equal(t, "its place", []any{r.ParentRunID, r.ParentBy, r.BranchID, r.Depth, r.Base}, []any{"first", record.ParentContent, "first", 1, ""})
			equal(t, "the next one's", []any{again.ParentRunID, again.ParentBy, again.Base}, []any{"r", record.ParentContent, "r"})
			s.checkHeads()
		})
	}
}

// A run beside one that may go on is written at once, as its place rests on that; beside a closed one it is not.
func TestPartition_WritesNoRunAtOnceBesideAClosedOne(t *testing.T) {
	s := newSim(t, nil)
	s.send("t", "r", started("r"))
	s.all()
	s.silence(s.cfg.IdleLimit)
	s.all()
	begins := func(id string) bool {
		s.send("t", id, started(id))
		s.feed(1)
		s.commit(true)
		written := s.latest()[id] != nil
		s.send("t", id, finished(id))
		s.all()
		return written
	}
	equal(t, "beside an abandoned run", begins("r1"), true)
	s.silence(s.closing())
	s.all()
	equal(t, "beside a closed one", begins("r2"), false)
}

// However many runs fall silent at the same moment, one transaction has a portion of them, none comes into memory,
// and a process that dies in between leaves the rest to the next one.
func TestPartition_GivesUpManyRunsInPortions(t *testing.T) {
	const runs, portion = 500, 50
	for name, thread := range map[string]func(n int) string{
		"of threads of their own": func(n int) string { return fmt.Sprint("t", n) },
		"of one thread":           func(int) string { return "t" },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, func(c *Config) { c.silenceBytes = portion * silenceCost })
			for n := range runs {
				s.send(thread(n), fmt.Sprint("r", n), started(fmt.Sprint("r", n)))
				s.now = s.now.Add(time.Millisecond)
			}
			s.all()
			s.now = s.now.Add(s.cfg.CheckpointMax)
			s.commit(true)
			s.now = s.now.Add(evictAfter)
			s.commit(true)
			wait := s.cfg.IdleLimit
			for _, is := range []func(r *record.Run) bool{
				func(r *record.Run) bool { return r.Status == record.StatusAbandoned && r.Open != nil },
				func(r *record.Run) bool { return r.Closed && r.Open == nil },
			} {
				s.open(false)
				s.silence(wait)
				s.feed(len(s.events))
				equal(t, "waited for", len(s.part.silent)+len(s.part.abandoned), runs)
				for done := 0; done < runs; done += portion {
					before := len(s.runs)
					s.commit(true)
					n := 0
					for _, m := range s.runs[before:] {
						if header(m, record.HeaderKind) == string(record.KindRun) && !strings.HasPrefix(string(m.Key), "acme/elsewhere") {
							n++
						}
					}
					equal(t, "records of one transaction", n, portion)
					equal(t, "in memory", len(s.part.runs), 0)
					if n := len(s.part.threads); n > done+portion+2 {
						t.Fatalf("%d threads are at hand for %d runs", n, done+portion)
					}
					if done == runs/2 {
						s.open(done%3 == 0)
						s.silence(0)
						s.feed(len(s.events))
					}
				}
				for id, r := range s.latest() {
					if r.ThreadID != "elsewhere" && !is(r) {
						t.Fatalf("run %s is %s, closed %t", id, r.Status, r.Closed)
					}
				}
				before := len(s.runs)
				s.commit(true)
				equal(t, "records once all is done", len(s.runs), before)
				wait = s.closing() - s.cfg.IdleLimit
			}
			equal(t, "not sealed", s.openKeys(), []string{})
		})
	}
}

// Between C and P silence is not judged: a process that died in between two portions leaves the next one for when
// something new comes.
func TestPartition_GivesUpNobodyBelowP(t *testing.T) {
	s := newSim(t, func(c *Config) { c.silenceBytes = 1 })
	for _, id := range []string{"a", "b"} {
		s.send(id, id, started(id))
	}
	s.all()
	s.now = s.now.Add(s.cfg.CheckpointMax)
	s.commit(true)
	s.now = s.now.Add(s.cfg.IdleLimit)
	s.send("u", "open", started("open"))
	s.all()
	equal(t, "given up first", []record.Status{s.run("a").Status, s.run("b").Status}, []record.Status{record.StatusAbandoned, record.StatusRunning})
	equal(t, "C and P", []int64{s.settled.committedOffset, s.settled.decidedOffset}, []int64{2, 3})
	s.open(false)
	s.all()
	equal(t, "below P", s.run("b").Status, record.StatusRunning)
	s.send("u", "open", text("m", "x"))
	s.all()
	equal(t, "behind P", s.run("b").Status, record.StatusAbandoned)
}

// What a run is placed beside depends on the time of its first event, and not on when others were last given up.
func TestPartition_PlacesRunsByWhatIsAbandonedByThen(t *testing.T) {
	for _, each := range []bool{true, false} {
		s := newSim(t, nil)
		s.open(false)
		say := func(run, value string) {
			s.send("t", run, value)
			if each {
				s.all()
			}
		}
		say("first", started("first"))
		s.now = s.now.Add(s.cfg.IdleLimit / 2)
		say("a", started("a"))
		s.now = s.now.Add(s.cfg.IdleLimit / 2)
		say("b", started("b"))
		s.now = s.now.Add(s.cfg.IdleLimit/2 - time.Second)
		say("x", started("x"))
		s.now = s.now.Add(time.Second)
		say("y", started("y"))
		s.all()
		s.now = s.now.Add(s.cfg.CheckpointMax)
		s.commit(true)
		equal(t, fmt.Sprintf("parents, one by one %t", each), []string{s.run("x").ParentRunID, s.run("y").ParentRunID}, []string{"first", "a"})
	}
}

// Events of long ago are told again beside those of today, or by themselves to a partition that is read to its end: the
// run goes on, however slowly that is.
func TestPartition_TakesRecordsOfLongAgoForNoSilence(t *testing.T) {
	for _, beside := range []bool{true, false} {
		s := newSim(t, nil)
		s.open(false)
		old := s.now.Add(-10 * s.closing())
		for _, value := range []string{started("r"), text("m", "a"), text("m", "b"), finished("r")} {
			if beside {
				s.silence(s.cfg.IdleLimit / 2)
			}
			s.send("t", "r", value).Timestamp = old
			s.all()
			if !beside {
				s.now = s.now.Add(s.cfg.IdleLimit / 2)
				s.part.silentByClock(s.now)
				s.commit(true)
			}
		}
		r := s.run("r")
		equal(t, fmt.Sprintf("status and events, beside others %t", beside), []any{r.Status, r.Raw.Events}, []any{record.StatusFinished, int64(4)})
	}
}

// By the clock a run is closed once nothing has come for an idle limit either.
func TestPartition_ClosesByTheClockOnceNothingComes(t *testing.T) {
	s := newSim(t, nil)
	s.send("t", "r", started("r"))
	s.all()
	s.now = s.now.Add(s.closing())
	s.open(true)
	closed := func() bool {
		s.part.silentByClock(s.now)
		s.commit(true)
		return s.run("r").Closed
	}
	s.feed(len(s.events))
	equal(t, "closed at once", closed(), false)
	equal(t, "status", s.run("r").Status, record.StatusAbandoned)
	s.now = s.now.Add(s.cfg.IdleLimit)
	equal(t, "closed an idle limit later", closed(), true)
	equal(t, "not sealed", s.openKeys(), []string{})
}

// Of two runs with only their inputs the one that names the other finds it where that was closed first, in whatever
// portions.
func TestPartition_ClosesFirstWhatFellSilentFirst(t *testing.T) {
	for _, each := range []bool{true, false} {
		s := newSim(t, nil)
		input := func(id, parent string) {
			s.input("t", id, fmt.Sprintf(`{"threadId":"t","runId":%q,"messages":[%s],"tools":[],"context":[],"parentRunId":%q}`, id, userMessage("u"+id, "hello"), parent))
		}
		input("a", "b")
		input("b", "a")
		s.now = s.now.Add(time.Minute)
		input("a", "b")
		s.all()
		s.silence(s.closing() - time.Minute)
		if each {
			s.all()
		}
		s.silence(time.Minute)
		s.all()
		equal(t, fmt.Sprintf("parents, one by one %t", each), []string{s.run("a").ParentRunID, s.run("b").ParentRunID}, []string{"b", ""})
		equal(t, "not sealed", s.openKeys(), []string{})
	}
}

// As TestPartition_AnyBatchingAndAnyCrashGiveTheSame, of runs that are closed soon, some of which have only an input.
func TestPartition_AnyBatchingAndAnyCrashCloseRunsAlike(t *testing.T) {
	seed := newSeed(t)
	closed, inputs := 0, 0
	for i := range *roundFlag {
		seed := seed + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			after := 1 + rng.IntN(4)
			want := newSim(t, func(c *Config) { c.closeAfter = after })
			script(want, rng, 40+rng.IntN(200), true)
			onlyInputs(want, rng)
			want.now = want.now.Add(want.closing())
			want.send("t4", "last", started("last"))
			sameHowever(t, rng, want, func(c *Config) {
				c.OpenRunBytes, c.maxHeads, c.closeAfter = rng.IntN(2)<<20, rng.IntN(2)*maxHeads, after
			})
			equal(t, "not sealed", want.openKeys(), []string{"acme/t4/last"})
			for _, r := range want.latest() {
				if r.Closed {
					closed++
					if r.InputOnly() {
						inputs++
					}
				}
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d runs were closed, %d of them with only an input", closed, inputs)
	if inputs == 0 || inputs == closed {
		t.Error("the histories tell nothing")
	}
}

// onlyInputs puts inputs into a history of which nothing more comes, but at times the same once more.
func onlyInputs(s *sim, rng *rand.Rand) {
	events := s.events
	at := map[int][]*kgo.Record{}
	for n := range rng.IntN(8) {
		i := rng.IntN(len(events))
		thread, id := fmt.Sprint("t", 1+rng.IntN(3)), fmt.Sprint("i", rng.IntN(4))
		messages := userMessage(fmt.Sprint("u", 1+rng.IntN(9)), "hello")
		m := s.input(thread, id, fmt.Sprintf(`{"threadId":%q,"runId":%q,"messages":[%s],"state":{},"tools":[],"context":[],"parentRunId":"i%d"}`, thread, id, messages, rng.IntN(6)))
		m.Timestamp = events[i].Timestamp
		at[i] = append(at[i], m)
		if n%2 == 0 {
			again := *m
			j := i + rng.IntN(len(events)-i)
			again.Timestamp = events[j].Timestamp
			at[j] = append(at[j], &again)
		}
	}
	s.events = nil
	for i, m := range events {
		s.append(m)
		for _, m := range at[i] {
			s.append(m)
		}
	}
}

func TestService_ClosesByTheClockOnceEverythingIsRead(t *testing.T) {
	kafkatest.OnBoth(t, 1, closesByTheClockOnceEverythingIsRead)
}

func closesByTheClockOnceEverythingIsRead(t *testing.T, k kafka.Config) {
	cfg := testConfig(t.TempDir(), "a")
	cfg.IdleLimit, cfg.closeAfter = 300*time.Millisecond, 3
	s := newSim(t, nil)
	s.send("t", "r", started("r"))
	produce(t, k, 1, s.events...)
	runService(t, k, cfg)
	kafkatest.ConsumeUntil(t, k, k.Topics().Runs, func(all []*kgo.Record) bool {
		got := records(t, all)
		return len(got) > 0 && got[len(got)-1].Closed
	})
}
