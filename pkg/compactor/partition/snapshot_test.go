package partition

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/record"
)

// snapshotRuns are the runs of the snapshots of messages that were written, in order.
func (s *sim) snapshotRuns() []string {
	out := []string{}
	for _, m := range s.other {
		if m.Topic == s.Topics.Snapshots && strings.HasSuffix(string(m.Key), "/MESSAGES_SNAPSHOT") {
			out = append(out, header(m, record.HeaderRunID))
		}
	}
	return out
}

// commitNew feeds what is new and commits it, after some time.
func (s *sim) commitNew(after time.Duration) {
	s.tb.Helper()
	s.Now = s.Now.Add(after)
	s.feed(len(s.Events))
	s.commit(true)
}

func TestPartition_WritesTenQuickTurnsWholeOnce(t *testing.T) {
	s := newSim(t, nil)
	s.open(false)
	for i := range 10 {
		s.Turn(fmt.Sprint("r", i), fmt.Sprint("m", i))
		s.commitNew(2 * time.Second)
		equal(t, "C is at the last end", s.committed.Committed, int64(3*i+2))
		equal(t, "P", s.committed.Processed, int64(3*i+3))
	}
	s.commitNew(snapshotQuiet - time.Second)
	equal(t, "written while the thread speaks", s.snapshotRuns(), []string{})
	s.commitNew(time.Second)
	equal(t, "written once it is quiet", s.snapshotRuns(), []string{"r9"})
	equal(t, "C", s.committed.Committed, int64(30))
	messages, _ := s.history("r9")
	equal(t, "snapshot", string(s.snapshots()["acme/t/r0/MESSAGES_SNAPSHOT"].Value), `{"type":"MESSAGES_SNAPSHOT","messages":`+messages+`}`)
	s.commitNew(time.Hour)
	equal(t, "written afterwards", s.snapshotRuns(), []string{"r9"})
}

// A thread that is never quiet: no end waits longer for its snapshot than it may.
func TestPartition_WritesABusyThreadWholeNowAndThen(t *testing.T) {
	s := newSim(t, nil)
	s.open(false)
	for second := range 95 {
		if second%4 == 0 {
			s.Turn(fmt.Sprint("r", second), fmt.Sprint("m", second))
		}
		s.commitNew(time.Second)
	}
	equal(t, "runs that were written whole", s.snapshotRuns(), []string{"r28", "r60", "r92"})
}

// A process that dies between a run's end and its snapshot leaves it to the next one, which writes none that is older than what is
// there, though it reads earlier ends again.
func TestPartition_ACrashLosesNoSnapshot(t *testing.T) {
	for _, newFolder := range []bool{false, true} {
		for _, learns := range []bool{false, true} {
			t.Run(fmt.Sprint("new folder ", newFolder, ", learns of its commits ", learns), func(t *testing.T) {
				s := newSim(t, nil)
				again := func() { // event by event, as slowly as can be
					s.open(newFolder)
					for s.read < len(s.Events) {
						s.feed(1)
						s.Now = s.Now.Add(snapshotMax)
						s.commit(learns)
						if !learns {
							return
						}
					}
				}
				s.open(false)
				s.Send("other", "o", started("o")) // holds the committed offset throughout
				s.Turn("r0", "m0")
				s.commitNew(0)
				s.commitNew(snapshotQuiet)
				s.Turn("r1", "m1")
				s.commitNew(0)
				s.commitNew(snapshotQuiet)
				s.Turn("r2", "m2")
				s.feed(len(s.Events))
				s.commit(learns)
				equal(t, "before the crash", s.snapshotRuns(), []string{"r0", "r1"})
				for range 3 {
					again()
				}
				s.open(newFolder)
				s.commitNew(0)
				s.commitNew(snapshotQuiet)
				written := s.snapshotRuns()
				equal(t, "after it", written[2:], slicesOf("r2", len(written)-2))
				s.checkSnapshots()
			})
		}
	}
}

func slicesOf(s string, n int) []string {
	out := make([]string, max(1, n))
	for i := range out {
		out[i] = s
	}
	return out
}

// The first transaction of a new process with an end before it holds the offset at that end, so that it can die at once again.
func TestPartition_HoldsTheCommitForASnapshotThroughCrashes(t *testing.T) {
	s := newSim(t, nil)
	s.open(false)
	s.Turn("r0", "m0")
	s.commitNew(0)
	for i := range 3 {
		s.open(i%2 == 0)
		s.Turn(fmt.Sprint("x", i), "m")
		s.Events[len(s.Events)-1].Value = []byte(custom("goes on"))
		s.commitNew(time.Second)
		equal(t, "C", s.committed.Committed, int64(2))
	}
	s.commitNew(snapshotMax)
	equal(t, "written", s.snapshotRuns(), []string{"r0"})
	equal(t, "C", s.committed.Committed, int64(3))
}

// What awaits its snapshot neither keeps its thread in memory nor its conversation.
func TestPartition_WritesAThreadWholeThatHasLeftMemory(t *testing.T) {
	s := newSim(t, func(c *Config) { c.maxThreadRunsInMemory = 1 })
	s.open(false)
	s.Turn("r0", "m0")
	s.Turn("r1", "m1")
	s.commitNew(0)
	s.commitNew(time.Second)
	equal(t, "threads in memory", len(s.part.threads), 0)
	s.part.histories = newHistories(0)
	s.commitNew(0)
	messages, _ := s.history("r1")
	equal(t, "snapshot", string(s.snapshots()["acme/t/r0/MESSAGES_SNAPSHOT"].Value), `{"type":"MESSAGES_SNAPSHOT","messages":`+messages+`}`)
}

// More conversations than half of the cache holds do not wait: from the local store they would cost more.
func TestPartition_WritesWholeSoonerWhatTheCacheHasNoRoomFor(t *testing.T) {
	s := newSim(t, func(c *Config) { c.CacheBytes = 8 << 10 })
	s.open(false)
	for i := range 5 {
		id := fmt.Sprint("r", i)
		s.Send("t"+id, id, started(id))
		s.Send("t"+id, id, text("m", strings.Repeat("x", 1500)))
		s.Send("t"+id, id, finished(id))
	}
	s.commitNew(0)
	equal(t, "written at once", s.snapshotRuns(), []string{"r0", "r1", "r2"})
}

// Snapshots that are due at the same moment share the room of a transaction with what it writes besides.
func TestPartition_WritesManyThreadsWholeInPortions(t *testing.T) {
	s := newSim(t, nil)
	s.open(false)
	for i := range 3 {
		s.TurnOf(fmt.Sprint("t", i), fmt.Sprint("r", i))
	}
	s.commitNew(0)
	for i, want := range [][]string{{"r0"}, {"r0", "r1"}, {"r0", "r1", "r2"}} {
		s.inRoom = NewRoom(1)
		s.inRoom.outputs.Store(1)
		s.commitNew(snapshotQuiet)
		equal(t, fmt.Sprint("written by transaction ", i), s.snapshotRuns(), want)
	}
	equal(t, "C", s.committed.Committed, int64(len(s.Events)))
}

func TestPartition_AStopLeavesNoSnapshotToTheNextProcess(t *testing.T) {
	s := newSim(t, nil)
	s.Turn("r0", "m0")
	s.all()
	equal(t, "written", s.snapshotRuns(), []string{"r0"})
	equal(t, "C", s.committed.Committed, int64(3))
}

func TestPartition_AnErasureLeavesNoSnapshotToWrite(t *testing.T) {
	s := newSim(t, nil)
	s.open(false)
	s.Turn("r0", "secret")
	s.commitNew(0)
	s.Erase("t")
	s.commitNew(0)
	equal(t, "C", s.committed.Committed, int64(4))
	s.commitNew(time.Hour)
	equal(t, "written", keysWith("secret", s.other...), []string{})
}
