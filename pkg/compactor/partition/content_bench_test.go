package partition

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// A content event in Process, as it comes off a topic: 156 bytes, a number, 200 open runs that take turns of two events.
func BenchmarkPartition_Content(b *testing.B) {
	const runs, passes, burst = 200, 500, 2
	s := newSim(b, nil)
	var records []*kgo.Record
	for i := range runs {
		thread, run, message := fmt.Sprintf("thread-%05d", i), fmt.Sprintf("run-%032d", i), fmt.Sprintf("msg-9b1deb4d-3b7d-4bad-9bdd-%012d", i)
		s.Send(thread, run, started(run), seq(0))
		s.Send(thread, run, fmt.Sprintf(`{"type":"TEXT_MESSAGE_START","messageId":%q,"role":"assistant"}`, message), seq(1))
		for k := range burst {
			records = append(records, &kgo.Record{
				Topic: s.Topics.Events, Key: []byte("acme/" + thread), Timestamp: s.Now,
				Value:   fmt.Appendf(nil, `{"type":"TEXT_MESSAGE_CONTENT","timestamp":%d,"messageId":%q,"delta":"partition offset naïve 東京 \n%d "}`, 1763717400000+40*k, message, i),
				Headers: kafka.Headers(record.Headers{Kind: record.KindEvent, RunID: run}),
			})
		}
	}
	size := 0
	for _, m := range records {
		size += len(m.Value)
	}
	b.SetBytes(int64(size / len(records)))
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; {
		b.StopTimer()
		s.runs, s.other, s.committed = nil, nil, Progress{Partitions: 1}
		s.open(true)
		s.feed(len(s.Events))
		offset := int64(len(s.Events))
		s.inRoom.memory.Store(1 << 40)
		for pass := 0; pass < passes && done < b.N; pass++ {
			for i, m := range records {
				m.Offset = offset
				m.Headers[3].Value = strconv.AppendInt(m.Headers[3].Value[:0], int64(2+pass*burst+i%burst), 10)
				offset++
			}
			b.StartTimer()
			for from := 0; from < len(records); from += 8 {
				taken, _, err := s.part.Process(records[from:from+8], s.Now.Add(time.Millisecond), s.inRoom)
				if err != nil || taken != 8 {
					b.Fatal(taken, err)
				}
			}
			b.StopTimer()
			done += len(records)
		}
		if folded := s.part.counts.Folded; folded != int(offset) {
			b.Fatalf("%d of %d events are folded: %v", folded, offset, s.part.counts.Outcomes)
		}
	}
}

// The end of a run of 500 deltas in Process, beside encoding its record once.
func BenchmarkPartition_End(b *testing.B) {
	const runs, deltas = 100, 500
	s := newSim(b, nil)
	for i := range runs {
		thread, run := fmt.Sprintf("thread-%05d", i), fmt.Sprintf("run-%032d", i)
		s.Send(thread, run, started(run))
		for k := range deltas {
			said := fmt.Sprintf("partition offset naïve 東京 %d%s", k, []string{" ", ". ", "\n"}[k%3])
			s.Send(thread, run, text(fmt.Sprintf("msg-9b1deb4d-3b7d-4bad-9bdd-%012d", i), said))
		}
	}
	before := len(s.Events)
	for i := range runs {
		run := fmt.Sprintf("run-%032d", i)
		s.Send(fmt.Sprintf("thread-%05d", i), run, finished(run))
	}
	var encoded *record.Run
	b.Run("Process", func(b *testing.B) {
		b.ReportAllocs()
		b.StopTimer()
		for done := 0; done < b.N; {
			s.runs, s.other, s.committed = nil, nil, Progress{Partitions: 1}
			s.open(true)
			s.feed(before)
			b.StartTimer()
			for _, m := range s.Events[before:] {
				s.process(m)
			}
			b.StopTimer()
			done += runs
			s.read = len(s.Events)
			s.commit(true)
		}
		for _, r := range s.latest() {
			encoded = r
		}
	})
	b.Run("Encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := record.EncodeRun(encoded); err != nil {
				b.Fatal(err)
			}
		}
	})
}
