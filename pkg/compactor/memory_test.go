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

// What open runs may hold in a process is the same whatever the number of its partitions.
func TestPartition_SharesMemoryWithTheOthersOfItsProcess(t *testing.T) {
	s := newSim(t, nil)
	s.open(false)
	for _, partitions := range []int{4, 1} {
		s.part.share(partitions)
		equal(t, "bytes of open runs", s.part.mostRunBytes, s.cfg.OpenRunBytes/partitions)
	}
}
