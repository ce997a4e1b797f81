package partition

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/kafka"
)

// Events as they come off a topic: 200 runs at a time of 500 deltas each, every thread of one turn, a
// transaction every 10,000 events.
func BenchmarkPartition_Deltas(b *testing.B) { benchmarkDeltas(b, nil) }

// The same, signed by ingest, with each signature checked.
func BenchmarkPartition_SignedDeltas(b *testing.B) { benchmarkDeltas(b, ingestKeys(b)) }

func benchmarkDeltas(b *testing.B, keys *kafka.IngestKeys) {
	s := newSim(b, func(cfg *Config) { cfg.IngestKeys = keys })
	const runs, deltas = 200, 500
	for step := range deltas + 4 {
		for i := range runs {
			thread, run, message := fmt.Sprintf("t%d", i), fmt.Sprintf("run-%08d", i), fmt.Sprintf("6f1e2d3c-4b5a-%012d", i)
			switch step {
			case 0:
				s.Send(thread, run, fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, thread, run))
			case 1:
				s.Send(thread, run, fmt.Sprintf(`{"type":"TEXT_MESSAGE_START","messageId":%q,"role":"assistant"}`, message))
			case deltas + 2:
				s.Send(thread, run, fmt.Sprintf(`{"type":"TEXT_MESSAGE_END","messageId":%q}`, message))
			case deltas + 3:
				s.Send(thread, run, fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, thread, run))
			default:
				s.Send(thread, run, fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","timestamp":1767225600000,"messageId":%q,"delta":" token"}`, message))
			}
		}
	}
	for _, m := range s.Events {
		keys.Sign(m)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; {
		b.StopTimer()
		s.runs, s.other, s.committed = nil, nil, Progress{Partitions: 1}
		s.open(true)
		b.StartTimer()
		for s.read < len(s.Events) && done < b.N {
			n := min(10_000, b.N-done)
			s.feed(n)
			s.commit(true)
			s.Now = s.Now.Add(500 * time.Millisecond)
			done += n
		}
	}
}

// longThread is a thread whose first run brings so many messages, with one more turn on it.
func longThread(tb testing.TB, messages, cache int) *sim {
	s := newSim(tb, func(c *Config) { c.CacheBytes = cache })
	s.cfg.RecordLimit = 1 << 30
	const each = agui.MaxMessages // the run starts again and again: the client appends what it does not know
	for from := 0; from < messages; from += each {
		var b strings.Builder
		for i := from; i < min(from+each, messages); i++ {
			b.WriteString("," + userMessage(fmt.Sprintf("u%d", i), strings.Repeat("x", 140)))
		}
		s.Send("t", "first", fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t","runId":"first","input":{"threadId":"t","runId":"first","messages":[%s],"tools":[],"context":[]}}`, b.String()[1:]))
	}
	s.Send("t", "first", finished("first"))
	s.open(false)
	s.feed(len(s.Events))
	s.commit(true)
	s.shortTurn("second")
	return s
}

// shortTurn plays a run without input and commits it; s.reads is then what it read.
func (s *sim) shortTurn(id string) {
	s.Send("t", id, started(id))
	s.Send("t", id, text("m"+id, "an answer"))
	s.Send("t", id, finished(id))
	s.feed(3)
	s.commit(true)
}

// A run without input in a conversation of so many messages; docs/bench/bytes-per-turn.md has the result.
func BenchmarkPartition_TurnOfALongConversation(b *testing.B) {
	for _, messages := range []int{100, 1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("%d messages", messages), func(b *testing.B) {
			s := longThread(b, messages, DefaultConfig().CacheBytes)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n++
				s.shortTurn(fmt.Sprint("r", n))
			}
		})
	}
}

// The heap that an open run takes, one run a thread, once its announcement is committed: one that has said some words, and one
// that has called a tool and has a state, too. The runs take turns, so that each event is a range of its own.
func BenchmarkPartition_OpenRun(b *testing.B) {
	const runs = 2_000
	words := []string{
		`{"type":"RUN_STARTED","timestamp":1767225600000,"threadId":"open-ID","runId":"run-ID"}`,
		`{"type":"TEXT_MESSAGE_START","timestamp":1767225600000,"messageId":"m-run-ID","role":"assistant"}`,
	}
	for i := range 10 {
		words = append(words, fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","timestamp":1767225600000,"messageId":"m-run-ID","delta":"word %d "}`, i))
	}
	acts := append(slices.Clone(words),
		`{"type":"TEXT_MESSAGE_END","messageId":"m-run-ID"}`,
		`{"type":"TOOL_CALL_START","toolCallId":"call-run-ID","toolCallName":"weather","parentMessageId":"m-run-ID"}`,
		`{"type":"TOOL_CALL_ARGS","toolCallId":"call-run-ID","delta":"{\"town\":\"Lyon\"}"}`,
		`{"type":"TOOL_CALL_END","toolCallId":"call-run-ID"}`,
		`{"type":"STATE_SNAPSHOT","snapshot":{"step":1,"town":"Lyon"}}`,
		`{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/step","value":2}]}`)
	for i, values := range [][]string{words, acts} {
		b.Run([]string{"text", "call and state"}[i], func(b *testing.B) {
			for b.Loop() {
				s := newSim(b, nil)
				s.open(false)
				for _, value := range values {
					for i := range runs {
						id := fmt.Sprintf("%08d", i)
						s.Send("open-"+id, "run-"+id, strings.ReplaceAll(value, "ID", id))
					}
					s.feed(runs)
				}
				s.commit(true)
				counted := s.part.runs.bytes
				held := heapBytes()
				s.part, s.inRoom = nil, nil
				held -= heapBytes()
				b.ReportMetric(float64(held)/runs, "B/run")
				b.ReportMetric(float64(counted)/runs, "counted-B/run")
				runtime.KeepAlive(s)
			}
		})
	}
}
