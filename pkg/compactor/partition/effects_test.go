package partition

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/parts/partstest"
	"github.com/skeinhq/skein/pkg/record"
)

// openMany feeds the partition the beginnings of so many runs that have said so much, each in a thread of its own.
func (s *sim) openMany(runs, size int) {
	s.tb.Helper()
	for i := range runs {
		s.Send(fmt.Sprint("t", i), "r", text("m", strings.Repeat("x", size)))
	}
	s.open(false)
	s.feed(runs)
}

// However many runs fall due at the same moment, as they do where they began together or where a process has read them again, a
// transaction has some of them, those first that hold the commit. A process that dies in between leaves the rest to the next one.
func TestPartition_WritesManyRunsThatAreDueInPortions(t *testing.T) {
	partstest.SkipShort(t, "time for tests of scale")
	for _, size := range []int{0, 10_000} {
		t.Run(fmt.Sprint(size, " bytes"), func(t *testing.T) {
			most := maxCheckpointBytes/(runOverhead+size) + 1
			runs := 5 * most / 2
			s := newSim(t, nil)
			s.openMany(runs, size)
			s.commit(true)
			equal(t, "C", s.committed.Committed, int64(0))
			again := func() {
				s.open(false)
				s.feed(runs)
				s.Now = s.Now.Add(s.cfg.CheckpointMax)
			}
			again()
			left := runs
			for transactions := 0; left > 0; transactions++ {
				if transactions == 2 {
					again()
				}
				n, bytes := s.runsWritten()
				if n == 0 || n > most || bytes > maxCheckpointBytes || transactions > runs/(most*3/4) {
					t.Fatalf("transaction %d has %d runs of %d bytes, %d are left", transactions, n, bytes, left)
				}
				left -= n
				equal(t, "C", s.committed.Committed, int64(runs-left))
			}
			n, _ := s.runsWritten()
			equal(t, "runs of the next transaction", n, 0)
			for i := range runs {
				s.Send(fmt.Sprint("t", i), "r", finished("r"))
			}
			s.all()
			for key, value := range s.values() {
				if key != record.ProgressKey && !strings.Contains(value, `"status":"finished"`) {
					t.Fatalf("%s is %.200s", key, value)
				}
			}
		})
	}
}

// The partitions of a process share the room for runs that are due: who comes later has what is left, and one run at least.
func TestProcessor_SharesTheRoomForRunsThatAreDue(t *testing.T) {
	runs := maxCheckpointBytes / runOverhead
	s := newSim(t, nil)
	s.openMany(runs, 0)
	s.Now = s.Now.Add(s.cfg.CheckpointMax)
	for _, c := range []struct{ left, least, most int }{
		{-1, 1, 1},
		{0, 1, 1},
		{maxCheckpointBytes / 2, runs * 9 / 20, runs/2 + 1},
		{maxCheckpointBytes, runs * 9 / 20, runs * 11 / 20}, // the others were written above
	} {
		room := NewRoom(1)
		room.checkpoints.Store(int64(c.left))
		b, err := s.part.Collect(Cycle{Now: s.Now, LogEnd: -1, Room: room})
		s.check(err)
		n := len(b.Outputs) - 1 // but for the position
		if n < c.least || n > c.most {
			t.Errorf("where others leave %d bytes, %d runs are written", c.left, n)
		}
		if c.left == maxCheckpointBytes/2 {
			s.check(s.part.Committed(b, s.Now))
		}
	}
}

// What is written in any case, as places rest on it, ends the round once it is much.
func TestProcessor_FoldsNoFurtherOnceEnoughRunsAreAskedFor(t *testing.T) {
	const runs, most = 2 * MaxOutputBytes / runOverhead, MaxOutputBytes/runOverhead + 2
	s := newSim(t, nil)
	s.open(false)
	for i := range runs {
		id := fmt.Sprint("r", i)
		s.Send("t", id, custom("x"))
	}
	room := NewRoom(1)
	done, stop, err := s.part.Process(s.Events, s.Now, room)
	s.check(err)
	if done < most/2 || done > most {
		t.Errorf("%d runs were asked for, want about %d", done, most)
	}
	equal(t, "the round is over", []any{stop, room.Full()}, []any{StopFull, true})
	n, _ := s.runsWritten()
	equal(t, "runs that are written", n, done)
	equal(t, "the next one is full", s.isFull(), false)
}
