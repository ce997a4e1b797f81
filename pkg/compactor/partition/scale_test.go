package partition

import (
	"encoding/json"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/test/parts/partstest"
)

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
		s.all()
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

// Threads of ten turns of 503 events of 156 bytes, which follow one another as fast as a backlog is drained, 20 at a time. Beside the
// records of runs, each conversation of 130 KB is written whole once. Bytes are of keys and values, uncompressed.
func TestPartition_WritesAShareOfABacklog(t *testing.T) {
	const threads, turns, deltas, commit = 20, 10, 499, 4_700 // events in 200 ms
	s := newSim(t, nil)
	s.open(false)
	for turn := range turns {
		for step := range deltas + 4 {
			for i := range threads {
				thread, run := fmt.Sprintf("thread-%05d", i), fmt.Sprintf("run-%036d", turn*threads+i)
				value := fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","timestamp":1763717400000,"messageId":"msg-%036d","delta":%q}`,
					turn, strings.Repeat("words ", 5+step%2))
				switch step {
				case 0:
					value = fmt.Sprintf(`{"type":"RUN_STARTED","timestamp":1763717400000,"threadId":%q,"runId":%q}`, thread, run)
				case 1:
					value = fmt.Sprintf(`{"type":"TEXT_MESSAGE_START","timestamp":1763717400000,"messageId":"msg-%036d","role":"assistant"}`, turn)
				case deltas + 2:
					value = fmt.Sprintf(`{"type":"TEXT_MESSAGE_END","timestamp":1763717400000,"messageId":"msg-%036d"}`, turn)
				case deltas + 3:
					value = fmt.Sprintf(`{"type":"RUN_FINISHED","timestamp":1763717400000,"threadId":%q,"runId":%q}`, thread, run)
				}
				s.Send(thread, run, value)
				if len(s.Events)%commit == 0 {
					s.Now = s.Now.Add(200 * time.Millisecond)
					s.feed(commit)
					s.commit(true)
				}
			}
		}
	}
	s.all()
	bytes := func(all []*kgo.Record) (n int) {
		for _, m := range all {
			n += len(m.Key) + len(m.Value)
		}
		return n
	}
	read := float64(bytes(s.Events))
	runs, snapshots := float64(bytes(s.runs))/read, float64(bytes(s.other))/read
	t.Logf("of what is read %.3f is written as run records and progress, %.3f as snapshots", runs, snapshots)
	if runs+snapshots > 0.40 {
		t.Errorf("%.3f of what was read is written, at most 0.40 are allowed", runs+snapshots)
	}
	equal(t, "snapshots of messages and state", len(s.other), 2*threads)
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
