package compactor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
)

// openMany feeds the partition the beginnings of so many runs that have said so much, each in a thread of its own.
func (s *sim) openMany(runs, size int) {
	s.tb.Helper()
	for i := range runs {
		s.send(fmt.Sprint("t", i), "r", text("m", strings.Repeat("x", size)))
	}
	s.open(false)
	s.feed(runs)
}

// However many runs fall due at the same moment, as they do where they began together or where a process has read them again, a
// transaction has some of them, those first that hold the commit. A process that dies in between leaves the rest to the next one.
func TestPartition_WritesManyRunsThatAreDueInPortions(t *testing.T) {
	for _, size := range []int{0, 10_000} {
		t.Run(fmt.Sprint(size, " bytes"), func(t *testing.T) {
			most := checkpointBytes/(runOverhead+size) + 1
			runs := 5 * most / 2
			s := newSim(t, nil)
			s.openMany(runs, size)
			s.commit(true)
			equal(t, "C", s.settled.Committed, int64(0))
			again := func() {
				s.open(false)
				s.feed(runs)
				s.now = s.now.Add(s.cfg.CheckpointMax)
			}
			again()
			left := runs
			for transactions := 0; left > 0; transactions++ {
				if transactions == 2 {
					again()
				}
				n, bytes := s.runsWritten()
				if n == 0 || n > most || bytes > checkpointBytes || transactions > runs/(most*3/4) {
					t.Fatalf("transaction %d has %d runs of %d bytes, %d are left", transactions, n, bytes, left)
				}
				left -= n
				equal(t, "C", s.settled.Committed, int64(runs-left))
			}
			n, _ := s.runsWritten()
			equal(t, "runs of the next transaction", n, 0)
			for i := range runs {
				s.send(fmt.Sprint("t", i), "r", finished("r"))
			}
			s.all()
			for key, value := range s.values() {
				if key != record.PositionKey && !strings.Contains(value, `"status":"finished"`) {
					t.Fatalf("%s is %.200s", key, value)
				}
			}
		})
	}
}

// What one partition leaves of the room for runs that are due, another one of the process has.
func TestPartition_HandsOnTheRoomForRunsThatAreDue(t *testing.T) {
	const partitions = 10
	runs := checkpointBytes / runOverhead
	s := newSim(t, nil)
	s.openMany(runs, 0)
	s.share(partitions)
	s.now = s.now.Add(s.cfg.CheckpointMax)
	for _, c := range []struct{ spare, least, most, left int }{
		{0, 1, runs/partitions + 1, 0},
		{checkpointBytes / 2, runs / 2, runs*6/10 + 1, 0},
		{checkpointBytes * 2, runs, runs, checkpointBytes},
	} {
		room := NewRoom(partitions)
		room.spareCheckpoints = c.spare
		b, err := s.part.Collect(Cycle{Now: s.now, LogEnd: -1, Room: room})
		s.check(err)
		n := len(b.Outputs) - 1 // but for the position
		if left := room.spareCheckpoints; n < c.least || n > c.most || left < c.left || left > c.spare {
			t.Errorf("where others leave %d bytes, %d runs are written and %d bytes are left", c.spare, n, left)
		}
	}
}

// What is written in any case, as places rest on it, ends the round once it is much.
func TestProcessor_FoldsNoFurtherOnceEnoughRunsAreAskedFor(t *testing.T) {
	const runs, most = 2 * roundBytes / runOverhead, roundBytes/runOverhead + 2
	s := newSim(t, nil)
	s.open(false)
	for i := range runs {
		id := fmt.Sprint("r", i)
		s.send("t", id, custom("x"))
	}
	room := NewRoom(1)
	done, stop, err := s.part.Process(s.events, s.now, room)
	s.check(err)
	if done < most/2 || done > most {
		t.Errorf("%d runs were asked for, want about %d", done, most)
	}
	equal(t, "the round is over", []any{stop, room.Full()}, []any{StopFull, true})
	n, _ := s.runsWritten()
	equal(t, "runs that are written", n, done)
	equal(t, "bytes of the next round", s.part.pending(), 0)
}
