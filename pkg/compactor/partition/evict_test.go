package partition

import (
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/test/parts/partstest"
)

// A run falls silent with events that no committed record holds: it stays in memory while others are
// committed, and what is committed stays behind it.
func TestPartition_DropsNothingFromMemoryBeforeItsCommit(t *testing.T) {
	s := newSim(t, func(c *Config) { c.CheckpointInterval, c.CheckpointMax = time.Hour, time.Hour })
	s.Send("u", "open", started("open"))
	s.Send("u", "open", text("m", "one "))
	s.all()
	s.Now = s.Now.Add(10 * evictAfter)
	s.Turn("r1", "m1")
	s.all()
	equal(t, "C", s.committed.Committed, int64(0))
	s.Send("u", "open", text("m", "two"))
	s.Send("u", "open", finished("open"))
	s.all()
	equal(t, "message", string(s.run("open").Messages[0].Raw), assistantMessage("m", "one two"))
}

// Open runs that hold more memory than they may are written, longest silent first, and leave; what is
// spoken of stays. None of them loses anything.
func TestPartition_KeepsOpenRunsWithinTheirMemory(t *testing.T) {
	const runs, size = 40, 10_000
	s := newSim(t, func(c *Config) {
		c.CheckpointInterval, c.CheckpointMax = time.Hour, time.Hour
		c.OpenRunBytes = 10 * (size + runOverhead)
	})
	id := func(i int) string { return "r" + strconv.Itoa(i) }
	for i := range runs {
		s.Send("t"+id(i), id(i), started(id(i)))
		s.Send("t"+id(i), id(i), text("m", strings.Repeat("x", size)))
		s.all()
		s.Now = s.Now.Add(busyFor)
	}
	s.Send("busy", "busy", started("busy"))
	for range 3 { // one asks for records, one commits them, one looks again
		s.Send("busy", "busy", custom("here"))
		s.all()
		s.Now = s.Now.Add(busyFor)
	}
	if n := s.part.runs.bytes; n > s.cfg.OpenRunBytes {
		t.Errorf("open runs hold %d bytes, %d are allowed", n, s.cfg.OpenRunBytes)
	}
	if n := len(s.part.runs.byKey); n < 5 || n > 15 {
		t.Errorf("%d runs are in memory, want about 10", n)
	}
	if _, there := s.part.runs.byKey["acme/t"+id(runs-1)+"/"+id(runs-1)]; !there {
		t.Error("the one that spoke last has left memory before others")
	}
	for i := range runs {
		s.Send("t"+id(i), id(i), text("m", "!"))
		s.Send("t"+id(i), id(i), finished(id(i)))
	}
	s.all()
	for i := range runs {
		equal(t, "message of "+id(i), string(s.run(id(i)).Messages[0].Raw), assistantMessage("m", strings.Repeat("x", size)+"!"))
	}
}

// The same where each run that is to leave takes more than there is room for.
func TestPartition_WritesWhatHoldsTheCommitBesideLargeRuns(t *testing.T) {
	const runs, size = 30, 100_000
	s := newSim(t, func(c *Config) { c.OpenRunBytes = runs / 2 * size })
	s.room = size / 2
	s.open(false)
	s.Send("small", "r", started("r"))
	s.feed(1)
	began := s.Now
	for i := 0; s.committed.Committed == 0; i++ {
		if s.Now.Sub(began) > 2*s.cfg.CheckpointMax {
			t.Fatalf("C stands still, at event %d", s.read)
		}
		s.Now = s.Now.Add(200 * time.Millisecond)
		s.Send("small", "r", custom("x"))
		s.Send(fmt.Sprint("large", i%runs), "r", text("m", strings.Repeat("x", size/10)))
		s.feed(2)
		s.commit(true)
	}
}

// heapBytes is what the heap holds.
func heapBytes() int {
	runtime.GC()
	runtime.GC() // empties the pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// The bound on open runs means bytes of memory: what a run is counted for is about what it holds, whether it
// has said much or next to nothing.
func TestRun_HoldsAboutWhatItIsCountedFor(t *testing.T) {
	partstest.SkipShort(t, "time for tests of scale")
	const runs = 5_000
	for _, size := range []int{0, 20_000} {
		s := newSim(t, nil)
		s.open(false)
		before := heapBytes()
		for i := range runs {
			id := "run-" + strconv.Itoa(i)
			s.Send("thread-of-"+id, id, started(id))
			s.Send("thread-of-"+id, id, text("message-of-"+id, strings.Repeat("x", size)))
			s.feed(2)
			clear(s.Events) // the log is not the partition's
		}
		held, counted := heapBytes()-before, 0
		for _, r := range s.part.runs.byKey {
			counted += r.size()
		}
		t.Logf("with %d bytes said: %d bytes held, %d counted", size, held/runs, counted/runs)
		if held > counted*3/2 || held < counted/2 {
			t.Errorf("with %d bytes said a run holds %d bytes and is counted for %d", size, held/runs, counted/runs)
		}
		runtime.KeepAlive(s)
	}
}

func (p *Processor) headsAtHand() (n int) {
	for _, t := range p.threads {
		n += t.size()
	}
	return n
}

// The runs that have ended leave memory but for some, also those of threads that always have an open run, and what is made
// is the same.
func TestPartition_KeepsTheRunsAtHandWithinTheirMemory(t *testing.T) {
	const threads, runs, batch = 5, 3_000, 300
	made := func(most int) (*sim, int) {
		s := newSim(t, func(c *Config) { c.maxThreadRunsInMemory, c.SnapshotBelow = most, 1 })
		s.open(false)
		for i := range threads {
			s.Send("t"+strconv.Itoa(i), "first", started("first"))
		}
		for i := range 300 { // spoken of once
			s.TurnOf("idle"+strconv.Itoa(i), "only")
		}
		held := 0
		for i := range runs {
			thread, id := "t"+strconv.Itoa(i%threads), "run-"+strconv.Itoa(i)
			if i%(threads*20) < threads { // one is always open
				s.Send(thread, "open-"+strconv.Itoa(i), started("open-"+strconv.Itoa(i)))
				s.Send(thread, "first", finished("first"))
				s.Send(thread, "open-"+strconv.Itoa(i-threads*20), finished("open-"+strconv.Itoa(i-threads*20)))
			}
			s.Send(thread, id, started(id))
			s.Send(thread, id, text("m"+id, "x"))
			s.Send(thread, id, finished(id))
			if i%batch == batch-1 {
				s.Now = s.Now.Add(busyFor)
				s.all()
				held = max(held, s.part.headsAtHand())
			}
		}
		return s, held
	}
	free, all := made(maxThreadRunsInMemory)
	bound, some := made(500)
	equal(t, "records", bound.values(), free.values())
	equal(t, "snapshots", bound.snapshotValues(), free.snapshotValues())
	if all < runs || some > 500 {
		t.Errorf("%d heads were at hand, and %d where 500 may be", all, some)
	}
	if n := len(bound.part.threads); n != threads {
		t.Errorf("%d threads are at hand, want those with an open run", n)
	}
}

// The bound on the runs in memory means bytes of memory, too.
func TestThread_HoldsAboutWhatItIsCountedFor(t *testing.T) {
	partstest.SkipShort(t, "time for tests of scale")
	for name, threads := range map[string]int{"a thread of many runs": 1, "threads of one run": 5_000} {
		dir := t.TempDir() // it is removed after the store is closed, which writes to it
		s := newSim(t, func(c *Config) { c.CacheBytes = 0 })
		stores := runstore.NewSet(vfs.Default, dir, slog.New(slog.DiscardHandler)) // whose data is not in memory
		s.newStore = func() (*runstore.Store, error) {
			store, _, _, err := stores.Lock(0)
			return store, err
		}
		s.open(false)
		before := heapBytes()
		for i := range 5_000 {
			id := strconv.Itoa(i)
			s.TurnOf("a-thread-with-some-name-"+strconv.Itoa(i%threads), "a-run-with-some-name-"+id)
			if i%100 == 99 {
				s.all()
				clear(s.Events) // the logs are not the partition's
				clear(s.runs)
				clear(s.other)
			}
		}
		runs := heapBytes() - before
		counted := s.part.headsAtHand()
		t.Logf("%s: %d bytes a head", name, runs/counted)
		if bytes := runs / counted; bytes > metadataBytes*3 /* the race detector doubles it */ || bytes < metadataBytes/4 {
			t.Errorf("%s: metadata takes %d bytes and is counted for %d", name, bytes, metadataBytes)
		}
		runtime.KeepAlive(s)
	}
}

// What open runs may hold in a process is the same whatever the number of its partitions.
func TestPartition_SharesMemoryWithTheOthersOfItsProcess(t *testing.T) {
	s := newSim(t, nil)
	s.open(false)
	for _, n := range []int{4, 1} {
		s.part.enter(NewRoom(n))
		want := limits{s.cfg.OpenRunBytes / n, s.cfg.CacheBytes / n, s.cfg.maxThreadRunsInMemory / n, unloadReads / n}
		equal(t, "limits", s.part.limits, want)
		equal(t, "bytes of histories", s.part.histories.limit, want.cacheBytes)
	}
}

// A run that is over the limit holds the committed offset, and what ended behind it is read again after a crash. That
// changes nothing, so there is no transaction; the runs in memory are bounded all the same.
func TestPartition_BoundsTheRunsInMemoryBelowTheProcessedOffset(t *testing.T) {
	const most = 60
	s := newSim(t, func(c *Config) { c.RecordLimit, c.maxThreadRunsInMemory = 64<<10, most })
	s.Send("large", "large", started("large"))
	for range 10 {
		s.Send("large", "large", text("m", strings.Repeat("x", 10<<10)))
	}
	for i := range 100 {
		s.TurnOf("t"+strconv.Itoa(i), "r")
	}
	s.all()
	equal(t, "the committed offset", s.committed.Committed, int64(0))
	s.open(true)
	s.feed(len(s.Events))
	for range 5 {
		s.Now = s.Now.Add(time.Second)
		s.commit(true)
	}
	equal(t, "read up to", s.part.next, int64(len(s.Events)))
	if n := s.part.headsAtHand(); n > most {
		t.Errorf("%d heads are at hand where %d may be", n, most)
	}
}
