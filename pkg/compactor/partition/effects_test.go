package partition

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/parts/partstest"
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

// What is written in any case, as places rest on it, ends the round once it is much.
func TestProcessor_FoldsNoFurtherOnceEnoughRunsAreAskedFor(t *testing.T) {
	const most = MaxOutputBytes/(2*announcementBytes) + 2
	const runs = most + 100
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
