package partition

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compactor/partition/partitiontest"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// silence lets time pass, which another thread's event tells.
func (s *sim) silence(d time.Duration) {
	s.tb.Helper()
	s.Now = s.Now.Add(d)
	id := fmt.Sprint("at", len(s.Events))
	s.Send("elsewhere", id, started(id))
	s.Send("elsewhere", id, finished(id))
}

// rest commits until open runs are written and have left memory.
func (s *sim) rest() {
	s.tb.Helper()
	for _, d := range []time.Duration{0, s.cfg.CheckpointMax, evictAfter} {
		s.Now = s.Now.Add(d)
		s.commit(true)
	}
	equal(s.tb, "runs in memory", len(s.part.runs.byKey), 0)
}

// manyRuns opens the partition behind the records of so many open runs, each in a thread of its own, one second later
// than the one before.
func (s *sim) manyRuns(n int) {
	s.tb.Helper()
	s.Send("t0", "r", started("r"))
	s.open(false)
	s.feed(1)
	s.rest()
	model, rec := s.runs[0], s.run("r")
	for i := 1; i < n; i++ {
		m := *model
		rec.ThreadID, rec.Open.LastAt = fmt.Sprint("t", i), rec.Open.LastAt.Add(time.Second)
		value, err := record.EncodeRun(rec)
		s.check(err)
		m.Key, m.Value, m.Offset = []byte("acme/"+rec.ThreadID+"/r"), value, int64(len(s.runs))
		s.runs = append(s.runs, &m)
	}
	s.Now = rec.Open.LastAt
	s.open(false)
}

// runsWritten counts the records of runs of a commit, but for those of the thread that tells the time, and their bytes.
func (s *sim) runsWritten() (runs, bytes int) {
	s.tb.Helper()
	before := len(s.runs)
	s.commit(true)
	for _, m := range s.runs[before:] {
		if header(m, record.HeaderKind) == string(record.KindRun) && !strings.HasPrefix(string(m.Key), "acme/elsewhere") {
			runs, bytes = runs+1, bytes+len(m.Value)
		}
	}
	return runs, bytes
}

// However many runs fall silent at the same moment, a transaction has a portion of them, and no more are in
// memory than a few portions; a process that dies in between leaves the rest to the next one.
func TestPartition_GivesUpManyRunsInPortions(t *testing.T) {
	const portion = maxExpiryBytes/runOverhead + 1
	for _, c := range []struct{ runs, until int }{{20 * portion, 10 * portion}, {5 * portion, 5 * portion}} {
		s := newSim(t, nil)
		s.manyRuns(c.runs)
		s.silence(s.cfg.IdleLimit)
		s.feed(len(s.Events))
		done := 0
		for transactions := 0; done < c.until; transactions++ {
			if transactions == 3 {
				s.open(false)
				s.silence(0)
				s.feed(len(s.Events))
			}
			runs, bytes := s.runsWritten()
			if runs == 0 || runs > portion || bytes > maxExpiryBytes || len(s.part.runs.byKey) > 6*portion {
				t.Fatalf("%d runs of %d bytes in a transaction, %d in memory, %d done", runs, bytes, len(s.part.runs.byKey), done)
			}
			done += runs
			s.Now = s.Now.Add(200 * time.Millisecond)
		}
		equal(t, "runs that wait", len(s.part.retirement.expiring.heap), c.runs-done)
		if done < c.runs {
			continue
		}
		for key, value := range s.values() {
			if strings.HasPrefix(key, "acme/t") && !strings.Contains(value, `"status":"abandoned"`) {
				t.Fatalf("%s is %s", key, value)
			}
		}
		runs, _ := s.runsWritten()
		equal(t, "runs of the next transaction", runs, 0)
	}
}

// What a run is placed beside depends on the time of its first event, and not on when others were given up by the way.
func TestPartition_PlacesRunsByWhatIsAbandonedByThen(t *testing.T) {
	for _, each := range []bool{true, false} {
		s := newSim(t, nil)
		s.open(false)
		say := func(run, value string) {
			s.Send("t", run, value)
			if each {
				s.all()
			}
		}
		say("first", started("first"))
		s.Now = s.Now.Add(s.cfg.IdleLimit / 2)
		say("a", started("a"))
		s.Now = s.Now.Add(s.cfg.IdleLimit / 2)
		say("b", started("b"))
		s.Now = s.Now.Add(s.cfg.IdleLimit/2 - time.Second)
		say("x", started("x"))
		s.Now = s.Now.Add(time.Second)
		say("y", started("y"))
		s.all()
		s.Now = s.Now.Add(s.cfg.CheckpointMax)
		s.commit(true)
		equal(t, fmt.Sprintf("parents, one by one %t", each), []string{s.run("b").ParentRunID, s.run("x").ParentRunID, s.run("y").ParentRunID},
			[]string{"first", "first", "a"})
	}
}

// Events of long ago are told again beside those of today: the run goes on, however slowly that is, and is given up an idle limit
// after the last of them.
func TestPartition_TakesRecordsOfLongAgoForNoSilence(t *testing.T) {
	s := newSim(t, nil)
	s.open(false)
	old := s.Now.Add(-1000 * time.Hour)
	say := func(value string) *kgo.Record {
		m := s.Send("t", "r", value)
		m.Timestamp = old
		s.all()
		return m
	}
	abandoned := 0
	for i, value := range []string{started("r"), text("m", "a"), text("m", "b")} {
		s.silence(s.cfg.IdleLimit / 2)
		s.feed(len(s.Events))
		abandoned += s.part.counts.Ended[record.StatusAbandoned]
		s.commit(true)
		say(value)
		equal(t, fmt.Sprint("events at ", i), s.part.runs.byKey["acme/t/r"].Tally.Events, int64(i+1))
	}
	equal(t, "times that it was given up", abandoned, 0)
	s.silence(s.cfg.IdleLimit - time.Second)
	s.all()
	equal(t, "status before the limit", s.run("r").Status, record.StatusRunning)
	s.silence(time.Second)
	s.all()
	equal(t, "status behind it", s.run("r").Status, record.StatusAbandoned)
	say(finished("r"))
	equal(t, "status and events", []any{s.run("r").Status, s.run("r").Raw.Events}, []any{record.StatusFinished, int64(4)})
}

// closing is how long a run stays abandoned.
func (s *sim) closing() time.Duration { return s.cfg.IdleLimit * closeAfter }

// openKeys are the runs that the local store has as not sealed.
func (s *sim) openKeys() []string {
	var keys []string
	s.check(s.store.EachUnsealed(func(key string, _ time.Time, _ *fold.Metadata) { keys = append(keys, key) }))
	return keys
}

// abandoned begins runs of a thread and lets them fall silent.
func (s *sim) abandoned(thread string, runs ...string) {
	s.tb.Helper()
	for _, id := range runs {
		s.Send(thread, id, started(id))
		s.Send(thread, id, text("m"+id, "a"))
	}
	s.all()
	s.silence(s.cfg.IdleLimit)
	s.all()
	for _, id := range runs {
		equal(s.tb, "status of "+id, s.run(id).Status, record.StatusAbandoned)
	}
}

// A run that has been abandoned for a week is closed. What comes then is handled as behind any end, now and when it is
// folded by somebody else, and nothing of the run waits any more.
func TestPartition_ClosesWhatStaysAbandoned(t *testing.T) {
	for name, step := range map[string]func(s *sim){
		"on the way":             func(*sim) {},
		"by another process":     func(s *sim) { s.open(false) },
		"on a new folder":        func(s *sim) { s.open(true) },
		"with others of its own": func(s *sim) { s.Send("t", "r2", started("r2")); s.all() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, nil)
			s.Turn("r0", "m0")
			s.abandoned("t", "r")
			at := s.Now
			step(s)
			s.Now = at.Add(s.closing() - time.Second)
			s.silence(0)
			s.all()
			equal(t, "closed before it is time", s.run("r").Closed, false)
			s.Now = at.Add(s.closing())
			s.silence(0)
			s.all()
			r := s.run("r")
			equal(t, "status, synthetic, closed, open", []any{r.Status, r.Synthetic, r.Closed, r.Open == nil},
				[]any{record.StatusAbandoned, true, true, true})
			equal(t, "bytes for its branch's next snapshot", r.SinceSnapshot, int64(lineage.History{Messages: r.Messages}.Bytes()))
			equal(t, "not sealed, by the local store", slices.Contains(s.openKeys(), "acme/t/r"), false)
			equal(t, "waits", s.part.retirement.closing.byKey["acme/t/r"] == nil && s.part.retirement.expiring.byKey["acme/t/r"] == nil, true)
			messages, _ := s.history("r")
			late := s.Send("t", "r", text("mr", "late"))
			s.all()
			equal(t, "dead letters", s.letters(), []string{fmt.Sprintf("0:%d after-terminal", late.Offset)})
			equal(t, "raw", s.run("r").Raw, r.Raw)
			s.checkHeads()

			s.open(true)
			s.Send("t", "r", started("r"))
			s.Send("t", "r", text("m2", "b"))
			s.Send("t", "r", finished("r"))
			s.all()
			again := s.run("r~2")
			equal(t, "the id used again", []any{again.ClientRunID, again.Status, again.Raw.Events}, []any{"r", record.StatusFinished, int64(3)})
			if name != "with others of its own" {
				equal(t, "its place", []any{again.ParentRunID, again.Base, again.Depth}, []any{"r", "r", 2})
			}
			after, _ := s.history("r")
			equal(t, "the history of the closed one", after, messages)
			if s.latest()["r2"] != nil {
				s.Send("t", "r2", finished("r2"))
				s.all()
			}
			equal(t, "records that come out otherwise", len(s.foldedAgain("t")), 0)
		})
	}
}

// foldedAgain are the records of a thread that come out otherwise where it is folded again by its raw events and records.
func (s *sim) foldedAgain(thread string) []string {
	s.tb.Helper()
	records := s.byThread()[thread]
	for _, r := range records {
		r.Open = nil // as rows have it
	}
	return s.changed(records)
}

// A run of which only an input has come stays where it would have been; another input of its id is another run's.
func TestPartition_ClosesARunThatHasOnlyAnInput(t *testing.T) {
	input := fmt.Sprintf(`{"threadId":"t","runId":"r","messages":[%s,%s],"tools":[],"context":[]}`,
		assistantMessage("m1", "answer m1"), userMessage("u", "and?"))
	s := newSim(t, nil)
	s.Turn("first", "m1")
	s.Input("t", "r", input)
	s.all()
	s.silence(s.cfg.IdleLimit)
	s.all()
	s.silence(s.closing())
	s.all()
	s.Input("t", "r", input)
	s.Send("t", "r", started("r"))
	s.Send("t", "r", text("m2", "a word"))
	s.Send("t", "r", finished("r"))
	s.all()
	r, again := s.run("r"), s.run("r~2")
	equal(t, "closed", []any{r.Status, r.Closed, r.InputOnly(), r.Open == nil}, []any{record.StatusAbandoned, true, true, true})
	equal(t, "its place", []any{r.ParentRunID, r.ParentBy, r.BranchID, r.Depth}, []any{"first", record.ParentContent, "first", 1})
	equal(t, "the next one's", []any{again.ParentRunID, again.ParentBy, again.Base}, []any{"r", record.ParentContent, "r"})
	s.checkHeads()
	equal(t, "records that come out otherwise", len(s.foldedAgain("t")), 0)
	for i, m := range s.runs {
		if header(m, record.HeaderKind) == string(record.KindRun) && m.Value != nil {
			s.runs[i] = partitiontest.OlderRecord(t, m, "word", "Wort")
		}
	}
	equal(t, "records that were changed and come out otherwise", len(s.foldedAgain("t")), 1)
}

// Whenever runs are closed, and wherever the process dies: what was sealed or closed never changes, nothing is a dead letter twice, and
// the raw events make the same records again.
func TestPartition_AnyCrashBesideClosingGivesTheSame(t *testing.T) {
	seed := newSeed(t)
	closed, letters := 0, 0
	shown := func() bool { return closed >= rounds() && letters >= rounds() }
	for i := range untilShown(shown) {
		seed := seed + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			s := newSim(t, func(c *Config) {
				c.OpenRunBytes, c.maxThreadRunsInMemory = rng.IntN(2)<<20, rng.IntN(2)*maxThreadRunsInMemory
			})
			s.open(false)
			last := map[string]string{} // records that say an end for good
			check := func() {
				for key, value := range s.values() {
					r, err := record.DecodeRun([]byte(value))
					late := err == nil && r.LateError != nil && !strings.Contains(last[key], `"lateError"`) // the one thing that may come yet
					if err == nil && (last[key] == "" || late) && (r.Status.Sealed() || r.Closed) {
						last[key] = value
					}
				}
				for key, want := range last {
					if got := s.values()[key]; got != want {
						t.Fatalf("%s was\n%s\nand is\n%s", key, want, got)
					}
				}
			}
			step := func(feed int) {
				s.feed(feed)
				s.Now = s.Now.Add(time.Duration(rng.IntN(2)) * s.cfg.CheckpointMax)
				switch rng.IntN(4) {
				case 0: // it dies before the commit
					_, err := s.part.collect(s.Now)
					s.check(err)
					s.open(rng.IntN(2) == 0)
				case 1: // it dies behind it
					s.commit(false)
					s.open(rng.IntN(2) == 0)
				default:
					s.commit(true)
				}
				check()
			}
			for range 6 {
				partitiontest.Random(s.Script, rng, len(s.Events)+10+rng.IntN(30), false)
				for range rng.IntN(8) { // for a run of long ago, which may be closed by then
					id := fmt.Sprint("r", 1+rng.IntN(8))
					s.Send(fmt.Sprint("t", 1+rng.IntN(3)), []string{id, id, ""}[rng.IntN(3)],
						[]string{started(id), text("m"+id, "late"), custom("late"), finished(id)}[rng.IntN(4)])
				}
				for s.committed.Processed < int64(len(s.Events)) {
					step(1 + rng.IntN(20))
				}
				s.silence([]time.Duration{0, s.cfg.IdleLimit, s.closing() / 2, s.closing()}[rng.IntN(4)])
			}
			for range 4 { // all that is open is abandoned, and then closed
				s.silence(s.closing())
				s.all()
				check()
			}
			equal(t, "not sealed", len(s.openKeys()), 0)
			s.checkHeads()
			for _, thread := range []string{"t1", "t2", "t3"} {
				equal(t, "records of "+thread+" that come out otherwise", len(s.foldedAgain(thread)), 0)
			}
			got := s.letters()
			letters += len(got)
			once := slices.Compact(slices.Sorted(slices.Values(got)))
			equal(t, "dead letters", len(once), len(got))
			for _, value := range last {
				closed += strings.Count(value, `"closed":true`)
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d runs were closed, there were %d dead letters", closed, letters)
	if !shown() {
		t.Error("the histories tell nothing")
	}
}

// A compactor that was down, or lags, closes no run, as an unread event may belong to it. The log says whether it lags, not record times:
// one record may come from a fast clock.
func TestPartition_ClosesNobodyWhileItIsBehind(t *testing.T) {
	s := newSim(t, nil)
	s.abandoned("t", "r")
	down := s.Now
	s.Send("elsewhere", "fast", started("fast")).Timestamp = down.Add(s.closing() + 24*time.Hour)
	s.Now = down.Add(72 * time.Hour)
	s.Send("t", "r", text("mr", "I am back"))
	s.Send("t", "r", finished("r"))
	s.Now = down.Add(s.closing() + 24*time.Hour)
	s.open(false)
	s.feed(1)
	s.commit(true)
	s.feed(2)
	s.commit(true)
	r := s.run("r")
	equal(t, "status, closed, letters", []any{r.Status, r.Closed, s.letters()}, []any{record.StatusFinished, false, []string{}})
}

// The history that a run goes on from counts as its memory, so runs of long conversations leave memory as others do.
func TestPartition_CountsWhatRunsGoOnFrom(t *testing.T) {
	const threads, turns, size = 40, 4, 256 << 10
	s := newSim(t, func(c *Config) { c.OpenRunBytes, c.CacheBytes, c.SnapshotBelow = 4<<20, 1<<20, 0 })
	s.open(false)
	for i := range threads {
		thread := fmt.Sprint("t", i)
		for n := range turns {
			id := fmt.Sprint("r", n)
			s.Send(thread, id, started(id))
			s.Send(thread, id, text(fmt.Sprint("m", n), strings.Repeat("x", size)))
			s.Send(thread, id, finished(id))
		}
		s.feed(len(s.Events))
		s.commit(true)
		s.Send(thread, "open", started("open"))
	}
	s.all()
	for range 2 + threads<<20/(maxCheckpointBytes/2) { // they are counted, then written in portions, then they leave
		s.Now = s.Now.Add(2 * time.Second)
		s.commit(true)
	}
	if n := len(s.part.runs.byKey); n > 4 {
		t.Errorf("%d runs are in memory, each with a conversation of 1 MiB; 4 MiB are allowed", n)
	}
}

func TestWaits_FindTheLongestWhereOneGoesBack(t *testing.T) {
	now := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	w := newExpiryQueue()
	first := w.add("first", now.Add(365*24*time.Hour))
	other := w.add("other", now.Add(time.Minute))
	w.refresh(first, now)
	equal(t, "longest", w.oldest().key, "first")
	w.refresh(first, now.Add(time.Hour))
	w.refresh(other, now.Add(2*time.Hour))
	equal(t, "longest once both have gone on", w.oldest().key, "first")
}
