package compactor

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
)

// bush writes a thread of so many runs in branches of ten, each of which parts from within another at
// most 200 deep, and commits it. It returns the ids by depth and the messages' ids of each run's history.
func bush(s *sim, runs int) (tip string, histories map[string][]string) {
	rng := rand.New(rand.NewPCG(1, 2))
	histories = map[string][]string{}
	var ids []string
	for n := range runs {
		id, parent := fmt.Sprint("r", n), ""
		switch {
		case n%10 != 0:
			parent = ids[n-1]
		case n > 0:
			for parent == "" || len(histories[parent]) > 200 {
				parent = ids[rng.IntN(n/10)*10+rng.IntN(9)]
			}
		}
		s.send("t", id, fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t","runId":%q,"parentRunId":%q}`, id, parent))
		s.send("t", id, text("m"+id, "x"))
		s.send("t", id, finished(id))
		ids = append(ids, id)
		histories[id] = append(append([]string{}, histories[parent]...), "m"+id)
		if len(histories[id]) > len(histories[tip]) {
			tip = id
		}
	}
	s.open(false)
	for s.read < len(s.events) {
		s.feed(3000)
		s.commit(true)
	}
	return tip, histories
}

// A new run finds its parent with no read of the local store where its thread is at hand, and with one,
// of the heads, where it is not; however many runs the thread has. Beyond that it reads the records
// that its base's history is told in, as far as they are not at hand, and no others.
func TestPartition_FindsAParentInALargeThread(t *testing.T) {
	sizes := []int{100, 10_000}
	if testing.Short() {
		sizes = []int{100, 1_000}
	}
	for _, runs := range sizes {
		t.Run(fmt.Sprintf("%d runs", runs), func(t *testing.T) {
			s := newSim(t, nil)
			tip, histories := bush(s, runs)
			depth := len(histories[tip])
			branches := map[string]bool{}
			for _, r := range s.latest() {
				branches[r.BranchID] = true
			}
			equal(t, "branches", len(branches), runs/10)
			var messages []string
			for _, id := range histories[tip] {
				messages = append(messages, assistantMessage(id, "x"))
			}
			ways := map[record.ParentBy]string{
				record.ParentExplicit: fmt.Sprintf(`,"parentRunId":%q`, tip),
				record.ParentContent: fmt.Sprintf(`,"input":{"threadId":"t","runId":"r","messages":[%s],"tools":[],"context":[]}`,
					strings.Join(append(messages, userMessage("u", "go on")), ",")),
				record.ParentLatest: "",
			}
			n := 0
			for by, more := range ways {
				for _, cold := range []bool{true, false} {
					if cold {
						s.open(false)
					}
					n++
					id := fmt.Sprint("new", n)
					s.send("t", id, fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t","runId":%q%s}`, id, more))
					s.feed(1)
					reads := s.part.counts.reads
					wantThread, mostRecords := 0, 0
					if cold {
						wantThread, mostRecords = 1, depth
					}
					if by == record.ParentLatest {
						mostRecords = depth + n // the run that ended last is one of the new ones
					}
					if reads[readThread] != wantThread || reads[readRecord] > mostRecords {
						t.Errorf("%s, cold %t: reads %v, want %d of the thread and at most %d of records", by, cold, reads, wantThread, mostRecords)
					}
					s.send("t", id, text("m"+id, "x"))
					s.send("t", id, finished(id))
					s.feed(2)
					s.commit(true)
					if r := s.run(id); r.ParentBy != by || by != record.ParentLatest && r.ParentRunID != tip {
						t.Errorf("%s: parent %q by %s, want %q", by, r.ParentRunID, r.ParentBy, tip)
					}
				}
			}
		})
	}
}

// perTurn plays a thread of turns of 1 KB, a transaction a turn, and returns per turn the bytes that the
// topics hold after compaction and those that were written to them.
func perTurn(tb testing.TB, turns int) (stored, written float64) {
	s := newSim(tb, nil)
	s.open(true)
	const question, reply = 300, 700
	live := map[string]int{}
	total, runs, other := 0, 0, 0
	for n := range turns {
		id := fmt.Sprintf("run-%06d", n)
		parent := ""
		if n > 0 {
			parent = fmt.Sprintf("run-%06d", n-1)
		}
		s.send("t", id, fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t","runId":%q,"parentRunId":%q}`, id, parent))
		s.send("t", id, fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"u%06d","role":"user","delta":%q}`, n, strings.Repeat("q", question)))
		s.send("t", id, text(fmt.Sprintf("a%06d", n), strings.Repeat("a", reply)))
		s.send("t", id, finished(id))
		s.feed(4)
		s.commit(true)
		for _, m := range slices.Concat(s.runs[runs:], s.other[other:]) {
			size := len(m.Key) + len(m.Value)
			live[m.Topic+"/"+string(m.Key)] = size
			total += size
		}
		runs, other = len(s.runs), len(s.other)
	}
	sum := 0
	for _, size := range live {
		sum += size
	}
	return float64(sum) / float64(turns), float64(total) / float64(turns)
}

// What a thread takes grows with its turns, not with their square.
func TestPartition_StoresAndWritesInProportion(t *testing.T) {
	stored, written := perTurn(t, 10)
	for _, turns := range []int{100, 1_000} {
		more, moreWritten := perTurn(t, turns)
		if more > 1.1*stored || moreWritten > 5*written {
			t.Errorf("%d turns: %.0f bytes stored and %.0f written a turn; of 10 turns %.0f and %.0f", turns, more, moreWritten, stored, written)
		}
	}
}

// Bytes stored and written a turn; docs/bench has the result.
func BenchmarkPartition_BytesPerTurn(b *testing.B) {
	for _, turns := range []int{10, 100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("%d turns", turns), func(b *testing.B) {
			for b.Loop() {
				stored, written := perTurn(b, turns)
				b.ReportMetric(stored, "stored-B/turn")
				b.ReportMetric(written, "written-B/turn")
			}
		})
	}
}
