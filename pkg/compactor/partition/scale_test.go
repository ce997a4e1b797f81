package partition

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/parts/partstest"
	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/record"
)

// bush writes a thread of so many runs in branches of ten, each of which parts from within another at
// most 200 deep, and commits it. It returns the ids by depth and the messages' ids of each run's history.
func bush(s *sim, runs int, says string) (tip string, histories map[string][]string) {
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
		s.Send("t", id, fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t","runId":%q,"parentRunId":%q}`, id, parent))
		s.Send("t", id, text("m"+id, says))
		s.Send("t", id, finished(id))
		ids = append(ids, id)
		histories[id] = append(append([]string{}, histories[parent]...), "m"+id)
		if len(histories[id]) > len(histories[tip]) {
			tip = id
		}
	}
	s.open(false)
	for s.read < len(s.Events) {
		s.feed(3000)
		s.commit(true)
	}
	return tip, histories
}

// A new run finds its parent with three short reads of the local store at most, however many runs its thread
// has and whether or not the thread is in memory; one read more says that no run has its id. Where the parent's tree
// named a parent that came late, two more look for a cycle. A thread that
// is not in memory begins, in four reads, with the runs that have not ended and the one that ended last. What else is read are the
// records that the base's history is told in, as far as they are not in memory.
func TestPartition_FindsAParentInALargeThread(t *testing.T) {
	partstest.SkipShort(t, "time for tests of scale")
	for _, thread := range []struct {
		runs, cache int
		says        string
	}{{100, 64 << 20, "x"}, {10_000, 64 << 20, "x"}, {1_000, 64 << 10, strings.Repeat("x", 1_000)}} {
		runs := thread.runs
		t.Run(fmt.Sprintf("%d runs of %d bytes", runs, len(thread.says)), func(t *testing.T) {
			s := newSim(t, func(c *Config) { c.CacheBytes = thread.cache })
			tip, histories := bush(s, runs, thread.says)
			for n := range 40 { // trees each of which names the next one as its parent
				id := fmt.Sprint("late", n)
				s.Send("t", id, fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t","runId":%q,"parentRunId":"late%d"}`, id, n+1))
				s.Send("t", id, finished(id))
			}
			s.all()
			depth := len(histories[tip])
			branches := map[string]bool{}
			for _, r := range s.latest() {
				branches[r.BranchID] = true
			}
			equal(t, "branches", len(branches), runs/10+40)
			var messages []string
			for _, id := range histories[tip] {
				messages = append(messages, assistantMessage(id, thread.says))
			}
			input := func(messages ...string) string {
				return fmt.Sprintf(`,"input":{"threadId":"t","runId":"r","messages":[%s],"tools":[],"context":[]}`, strings.Join(messages, ","))
			}
			ways := []struct {
				name, more, parent string
				by                 record.ParentBy
				heads              int // reads
			}{
				{"named", fmt.Sprintf(`,"parentRunId":%q`, tip), tip, record.ParentExplicit, 4},
				{"named, of a tree with a late parent", `,"parentRunId":"late0"`, "late0", record.ParentExplicit, 6},
				{"by content", input(append(messages, userMessage("u", "go on"))...), tip, record.ParentContent, 4},
				{"by the content of a part", input(append(messages[:depth/2:depth/2], userMessage("u", "or so"))...), histories[tip][depth/2-1][1:], record.ParentContent, 4},
				{"of no content that is known", input(userMessage("v of RUN", "hello"), userMessage("w of RUN", "you")), "", record.ParentLatest, 5}, // one for each message, and for the first child
				{"of another content", input(userMessage("s", "hello"), messages[0]), "", record.ParentNone, 5},
				{"unknown", `,"parentRunId":"elsewhere"`, "", record.ParentNone, 2},
				{"latest", "", "", record.ParentLatest, 2},
			}
			for n, way := range ways {
				for _, cold := range []bool{true, false} {
					if cold {
						s.open(false)
						s.store.TakeReads()
					}
					id := fmt.Sprint("new", n, cold)
					s.Send("t", id, fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t","runId":%q%s}`, id, strings.ReplaceAll(way.more, "RUN", id)))
					s.feed(1)
					got := s.store.TakeReads()
					most := map[string]runstore.Reads{runstore.ReadMetadata: {Calls: way.heads, Bytes: 2048}, runstore.ReadRecord: {Calls: 1, Bytes: 4096}}
					if cold {
						most[runstore.ReadThread], most[runstore.ReadRecord] = runstore.Reads{Calls: 4, Bytes: 1024}, runstore.Reads{Calls: depth + 2*n, Bytes: 1 << 20}
					}
					for what, r := range got {
						if r.Calls > most[what].Calls || r.Bytes > most[what].Bytes {
							t.Errorf("%s, cold %t: %d reads of %d bytes (%s), want at most %v", way.name, cold, r.Calls, r.Bytes, what, most[what])
						}
					}
					s.Send("t", id, text("m"+id, "x"))
					s.Send("t", id, finished(id))
					s.feed(2)
					s.commit(true)
					if r := s.run(id); r.ParentBy != way.by || way.by != record.ParentLatest && r.ParentRunID != way.parent {
						t.Errorf("%s: parent %q by %s, want %q", way.name, r.ParentRunID, r.ParentBy, way.parent)
					}
				}
			}
		})
	}
}

// What a turn without input asks for does not depend on the conversation that it goes on from. (A turn at which
// the branch is written whole does, and so does the first one of a new branch, which copies the list.) That holds
// for a conversation, too, that is larger than all that may be in memory.
func TestPartition_ATurnCostsWhatItAdds(t *testing.T) {
	partstest.SkipShort(t, "time for tests of scale")
	const turns = 64
	cost := func(messages, cache int) float64 {
		s := longThread(t, messages, cache)
		s.shortTurn("first") // with which its list of messages grows once
		s.store.TakeReads()
		var before, after runtime.MemStats
		for was := uint64(0); ; was = before.TotalAlloc { // until the store has written the long conversation away
			if runtime.ReadMemStats(&before); before.TotalAlloc-was < 64<<10 {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		for n := range turns {
			s.shortTurn(fmt.Sprint("r", n))
			if r := s.reads[runstore.ReadRecord]; r.Calls > 0 {
				t.Fatalf("turn %d on %d messages read %d records", n, messages, r.Calls)
			}
		}
		runtime.ReadMemStats(&after)
		equal(t, "messages", s.run(fmt.Sprint("r", turns-1)).MessageCount, messages+turns+2)
		return float64(after.TotalAlloc-before.TotalAlloc) / turns
	}
	for _, cache := range []int{64 << 20, 64 << 10} {
		short, long := cost(1_000, cache), cost(16_000, cache)
		t.Logf("%.0f bytes a turn, and %.0f where the conversation is 16 times as long", short, long)
		if long > 2*short {
			t.Errorf("%.0f bytes a turn became %.0f where the conversation is 16 times as long", short, long)
		}
	}
}

var chainFlag = flag.Int("chain", 5_000, "runs of the longest chain")

// A chain of any length is gone on from, by a process that has it in memory and by one that has not; make
// long-chains takes more than 100,000. It is read once, by the process that has it not, and then no more, though
// it is far larger than what may be in memory, and open runs are written in between.
func TestPartition_GoesOnFromALongChain(t *testing.T) {
	partstest.SkipShort(t, "time for tests of scale")
	s := newSim(t, func(c *Config) {
		c.CacheBytes = 64 << 10
		c.CheckpointInterval, c.CheckpointFactor = time.Second, 0
	})
	s.open(false)
	n, said := *chainFlag, strings.Repeat("x", 1_000)
	for i := range n {
		id := fmt.Sprint("r", i)
		s.Send("t", id, started(id))
		s.Send("t", id, text("m"+id, said))
		if i%1000 == 999 {
			s.feed(2)
			s.commit(true)
			s.Now = s.Now.Add(2 * time.Second)
			s.Send("t", id, text("m"+id, "!"))
			s.feed(1)
			s.commit(true)
		}
		s.Send("t", id, finished(id))
		s.feed(3)
		if r := s.store.TakeReads()[runstore.ReadRecord]; r.Calls > 0 {
			t.Fatalf("run %d read %d records", i, r.Calls)
		}
	}
	s.commit(true)
	for i, cold := range []bool{false, true} {
		if cold {
			s.open(false)
		}
		s.store.TakeReads()
		id := fmt.Sprint("new", i)
		s.shortTurn(id)
		most := 1
		if cold {
			most = n + 1 + i
		}
		if read := s.reads[runstore.ReadRecord].Calls; read > most {
			t.Errorf("run %s read %d records, want at most %d", id, read, most)
		}
		r := s.run(id)
		equal(t, "depth", r.Depth, n+i)
		equal(t, "messages of the conversation", r.MessageCount, n+1+i)
		equal(t, "messages of its own", len(r.Messages), 1)
		var whole []json.RawMessage
		messages, _ := s.history(id)
		s.check(json.Unmarshal([]byte(messages), &whole))
		equal(t, "messages restored", len(whole), n+1+i)
		equal(t, "the last of them", string(whole[n+i]), assistantMessage("m"+id, "an answer"))
	}
}

// Conversations that are too large to be in memory together are read from their beginning when a turn on one comes
// behind one on the other: once a turn, however often the run is written while it is open.
func TestPartition_ReadsAConversationOnceATurnAtMost(t *testing.T) {
	const runs = 100
	s := newSim(t, func(c *Config) {
		c.CacheBytes = 64 << 10
		c.CheckpointInterval, c.CheckpointFactor = time.Second, 0
	})
	s.open(false)
	say := func(thread, id, value string) {
		s.Send(thread, id, value)
		s.feed(1)
		s.Now = s.Now.Add(2 * time.Second)
		s.commit(true)
	}
	for i := range runs {
		for _, thread := range []string{"t", "u"} {
			id := fmt.Sprint(thread, i)
			say(thread, id, started(id))
			if n := s.reads[runstore.ReadRecord].Calls; n > i {
				t.Fatalf("run %d read %d records", i, n)
			}
			say(thread, id, text("m"+id, strings.Repeat("x", 1_000)))
			if i == runs-1 {
				say("v", thread+"other", started(thread+"other")) // has nothing of the conversation stay in memory
				say("v", thread+"other", text(thread, strings.Repeat("x", 70_000)))
				say("v", thread+"other", finished(thread+"other"))
				say("v", thread+"more", started(thread+"more"))
			}
			for _, value := range []string{text("m"+id, "!"), finished(id)} {
				say(thread, id, value)
				if n := s.reads[runstore.ReadRecord].Calls; n > 0 {
					t.Fatalf("an event of run %d that was open read %d records", i, n)
				}
			}
		}
	}
	equal(t, "messages", s.run(fmt.Sprint("t", runs-1)).MessageCount, runs)
}

// A turn on a conversation that is not in memory; docs/bench has the result.
func BenchmarkPartition_TurnOfAConversationNotAtHand(b *testing.B) {
	for _, runs := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("%d runs", runs), func(b *testing.B) {
			s := newSim(b, nil)
			s.open(false)
			for i := range runs {
				id := fmt.Sprint("r", i)
				s.Send("t", id, started(id))
				s.Send("t", id, text("m"+id, strings.Repeat("x", 1_000)))
				s.Send("t", id, finished(id))
				s.feed(3)
			}
			s.commit(true)
			n := 0
			for b.Loop() {
				s.part.histories = newHistories(0)
				n++
				s.shortTurn(fmt.Sprint("more", n))
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
		s.Send("t", id, fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t","runId":%q,"parentRunId":%q}`, id, parent))
		s.Send("t", id, fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"u%06d","role":"user","delta":%q}`, n, strings.Repeat("q", question)))
		s.Send("t", id, text(fmt.Sprintf("a%06d", n), strings.Repeat("a", reply)))
		s.Send("t", id, finished(id))
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

// What a thread takes grows with its turns, not with their square; up to 1,000 here, and 10,000 in
// BenchmarkPartition_BytesPerTurn.
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
