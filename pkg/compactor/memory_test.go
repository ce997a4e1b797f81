package compactor

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A run falls silent with events that no committed record holds: it stays in memory while others are
// committed, and what is committed stays behind it.
func TestPartition_DropsNothingFromMemoryBeforeItsCommit(t *testing.T) {
	s := newSim(t, func(c *Config) { c.CheckpointInterval, c.CheckpointMax = time.Hour, time.Hour })
	s.send("u", "open", started("open"))
	s.send("u", "open", text("m", "one "))
	s.all()
	s.now = s.now.Add(10 * evictAfter)
	s.turn("r1", "m1")
	s.all()
	equal(t, "C", s.settled.committedOffset, int64(0))
	s.send("u", "open", text("m", "two"))
	s.send("u", "open", finished("open"))
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
		s.send("t"+id(i), id(i), started(id(i)))
		s.send("t"+id(i), id(i), text("m", strings.Repeat("x", size)))
		s.all()
		s.now = s.now.Add(busyFor)
	}
	s.send("busy", "busy", started("busy"))
	for range 3 { // one asks for records, one commits them, one looks again
		s.send("busy", "busy", custom("here"))
		s.all()
		s.now = s.now.Add(busyFor)
	}
	if n := s.part.runBytes; n > s.cfg.OpenRunBytes {
		t.Errorf("open runs hold %d bytes, %d are allowed", n, s.cfg.OpenRunBytes)
	}
	if n := len(s.part.runs); n < 5 || n > 15 {
		t.Errorf("%d runs are in memory, want about 10", n)
	}
	if _, there := s.part.runs["acme/t"+id(runs-1)+"/"+id(runs-1)]; !there {
		t.Error("the one that spoke last has left memory before others")
	}
	for i := range runs {
		s.send("t"+id(i), id(i), text("m", "!"))
		s.send("t"+id(i), id(i), finished(id(i)))
	}
	s.all()
	for i := range runs {
		equal(t, "message of "+id(i), string(s.run(id(i)).Messages[0].Raw), assistantMessage("m", strings.Repeat("x", size)+"!"))
	}
}

// The bound on open runs means bytes of memory: what a run is counted for is about what it holds, whether it
// has said much or next to nothing.
func TestRun_HoldsAboutWhatItIsCountedFor(t *testing.T) {
	const runs = 5_000
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	for _, size := range []int{0, 20_000} {
		s := newSim(t, nil)
		s.open(false)
		before := heap()
		for i := range runs {
			id := "run-" + strconv.Itoa(i)
			s.send("thread-of-"+id, id, started(id))
			s.send("thread-of-"+id, id, text("message-of-"+id, strings.Repeat("x", size)))
			s.feed(2)
			clear(s.events) // the log is not the partition's
		}
		held, counted := heap()-before, 0
		for _, r := range s.part.runs {
			counted += r.size()
		}
		t.Logf("with %d bytes said: %d bytes held, %d counted", size, held/runs, counted/runs)
		if held > counted*3/2 || held < counted/2 {
			t.Errorf("with %d bytes said a run holds %d bytes and is counted for %d", size, held/runs, counted/runs)
		}
		runtime.KeepAlive(s)
	}
}

// The runs that have ended leave memory but for some, also those of threads that always have an open run, and what is made
// is the same.
func TestPartition_KeepsTheRunsAtHandWithinTheirMemory(t *testing.T) {
	const threads, runs, batch = 5, 3_000, 300
	made := func(most int) (*sim, int) {
		s := newSim(t, func(c *Config) { c.maxHeads, c.SnapshotBelow = most, 1 })
		s.open(false)
		for i := range threads {
			s.send("t"+strconv.Itoa(i), "first", started("first"))
		}
		held := 0
		for i := range runs {
			thread, id := "t"+strconv.Itoa(i%threads), "run-"+strconv.Itoa(i)
			if i%(threads*20) < threads { // one is always open
				s.send(thread, "open-"+strconv.Itoa(i), started("open-"+strconv.Itoa(i)))
				s.send(thread, "first", finished("first"))
				s.send(thread, "open-"+strconv.Itoa(i-threads*20), finished("open-"+strconv.Itoa(i-threads*20)))
			}
			s.send(thread, id, started(id))
			s.send(thread, id, text("m"+id, "x"))
			s.send(thread, id, finished(id))
			if i%batch == batch-1 {
				s.now = s.now.Add(busyFor)
				s.all()
				n := 0
				for _, t := range s.part.threads {
					n += t.size()
				}
				held = max(held, n)
			}
		}
		return s, held
	}
	free, all := made(maxHeads)
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

// What open runs may hold in a process is the same whatever the number of its partitions.
func TestPartition_SharesMemoryWithTheOthersOfItsProcess(t *testing.T) {
	s := newSim(t, nil)
	s.open(false)
	for _, partitions := range []int{4, 1} {
		s.part.share(partitions)
		equal(t, "bytes of open runs", s.part.mostRunBytes, s.cfg.OpenRunBytes/partitions)
	}
}
