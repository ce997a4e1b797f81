package compactor

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/record"
)

// silence lets time pass, which another thread's event tells.
func (s *sim) silence(d time.Duration) {
	s.tb.Helper()
	s.now = s.now.Add(d)
	id := fmt.Sprint("at", len(s.events))
	s.send("elsewhere", id, started(id))
	s.send("elsewhere", id, finished(id))
}

// rest commits until open runs are written and have left memory.
func (s *sim) rest() {
	s.tb.Helper()
	for _, d := range []time.Duration{0, s.cfg.CheckpointMax, evictAfter} {
		s.now = s.now.Add(d)
		s.commit(true)
	}
	equal(s.tb, "runs in memory", len(s.part.runs), 0)
}

// manyRuns opens the partition behind the records of so many open runs, each in a thread of its own, one second later
// than the one before.
func (s *sim) manyRuns(n int) {
	s.tb.Helper()
	s.send("t0", "r", started("r"))
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
	s.now = rec.Open.LastAt
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
	const portion = portionBytes/runOverhead + 1
	for _, c := range []struct{ runs, until int }{{100_000, 10 * portion}, {5 * portion, 5 * portion}} {
		s := newSim(t, nil)
		s.manyRuns(c.runs)
		s.silence(s.cfg.IdleLimit)
		s.feed(len(s.events))
		done := 0
		for transactions := 0; done < c.until; transactions++ {
			if transactions == 3 {
				s.open(false)
				s.silence(0)
				s.feed(len(s.events))
			}
			runs, bytes := s.runsWritten()
			if runs == 0 || runs > portion || bytes > portionBytes || len(s.part.runs) > 6*portion {
				t.Fatalf("%d runs of %d bytes in a transaction, %d in memory, %d done", runs, bytes, len(s.part.runs), done)
			}
			done += runs
			s.now = s.now.Add(s.cfg.CommitInterval)
		}
		equal(t, "runs that wait", len(s.part.silent.heap), c.runs-done)
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

// A process has one portion for all its partitions. A round in which it is used up folds no further, and its transaction
// is due.
func TestPolled_FoldsNoFurtherOnceAPortionIsUsedUp(t *testing.T) {
	s := newSim(t, nil)
	s.manyRuns(100)
	const partitions = 10
	s.part.share(partitions)
	s.now = s.now.Add(2 * s.cfg.IdleLimit)
	p := &polled{of: &assignment{part: s.part}}
	for i := range 100 {
		p.records = append(p.records, s.send(fmt.Sprint("t", i), "r2", started("r2")))
	}
	bytes := new(atomic.Int64)
	s.check(p.process(bytes, s.now))
	const portion = portionBytes/partitions/runOverhead + 1
	if done := 100 - len(p.records); done == 0 || done > portion {
		t.Errorf("%d threads have gone on, %d are a portion", done, portion)
	}
	equal(t, "the round is over", bytes.Load() >= roundBytes, true)
	s.commit(true)
	bytes.Store(int64(s.part.pending()))
	left := len(p.records)
	s.check(p.process(bytes, s.now))
	equal(t, "it goes on behind the transaction", len(p.records) < left, true)
}

// Those that fell silent first come first.
func TestPartition_GivesUpFirstWhatFellSilentFirst(t *testing.T) {
	s := newSim(t, nil)
	s.manyRuns(3)
	s.part.share(portionBytes) // one run a transaction
	s.now = s.now.Add(time.Minute)
	s.send("t0", "r", text("m", "on"))
	s.feed(1)
	s.rest()
	s.silence(s.cfg.IdleLimit)
	s.feed(2)
	for _, want := range [][3]record.Status{
		{record.StatusRunning, record.StatusAbandoned, record.StatusRunning},
		{record.StatusRunning, record.StatusAbandoned, record.StatusAbandoned},
		{record.StatusAbandoned, record.StatusAbandoned, record.StatusAbandoned},
	} {
		s.commit(true)
		latest := s.values()
		for i, status := range want {
			r, err := record.DecodeRun([]byte(latest[fmt.Sprintf("acme/t%d/r", i)]))
			s.check(err)
			equal(t, r.ThreadID, r.Status, status)
		}
	}
}

// What a run is placed beside depends on the time of its first event, and not on when others were given up by the way.
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
		equal(t, fmt.Sprintf("parents, one by one %t", each), []string{s.run("b").ParentRunID, s.run("x").ParentRunID, s.run("y").ParentRunID}, []string{"first", "first", "a"})
	}
}

// Between C and P nobody is given up: that was decided.
func TestPartition_GivesUpNobodyBelowP(t *testing.T) {
	s := newSim(t, nil)
	s.manyRuns(2)
	s.part.share(portionBytes) // one run a transaction
	s.silence(s.cfg.IdleLimit + time.Second)
	s.send("u", "open", started("open"))
	s.send("u", "open", text("m", "x"))
	s.all()
	equal(t, "running", len(s.part.silent.heap), 2)
	s.open(false)
	equal(t, "below P", s.part.next < s.part.position.decidedOffset, true)
	s.feed(1)
	s.commit(true)
	equal(t, "running below P", len(s.part.silent.heap), 2)
	s.feed(1)
	s.commit(true)
	equal(t, "running at P", len(s.part.silent.heap), 1)
}

// Events of long ago are told again beside those of today: the run goes on, however slowly that is, and is given up an idle limit
// after the last of them.
func TestPartition_TakesRecordsOfLongAgoForNoSilence(t *testing.T) {
	s := newSim(t, nil)
	s.open(false)
	old := s.now.Add(-1000 * time.Hour)
	say := func(value string) *kgo.Record {
		m := s.send("t", "r", value)
		m.Timestamp = old
		s.all()
		return m
	}
	abandoned := 0
	for i, value := range []string{started("r"), text("m", "a"), text("m", "b")} {
		s.silence(s.cfg.IdleLimit / 2)
		s.feed(len(s.events))
		abandoned += s.part.counts.ended[record.StatusAbandoned]
		s.commit(true)
		say(value)
		equal(t, fmt.Sprint("events at ", i), s.part.runs["acme/t/r"].tally.Events, int64(i+1))
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
