package bench

import (
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// load is what agents send: runs of a number of text deltas each, many at a time.
type load struct {
	runs   int // in all
	open   int // at a time
	deltas int // of a run
	turns  int // runs of a thread, each with the conversation so far as its input
}

// around are the records of a run beside its deltas: input, start, message start and end, finish.
const around = 5

func (l load) records() int { return l.runs * (l.deltas + around) }

// each gives out the records in the order in which they are sent: the first record of each open run,
// the second of each, and so on; then the next runs.
func (l load) each(partitions int32, yield func(*kgo.Record) bool) {
	for first := 0; first < l.runs; first += l.open {
		for step := range l.deltas + around {
			for i := first; i < min(first+l.open, l.runs); i++ {
				if !yield(l.record(i, step, partitions)) {
					return
				}
			}
		}
	}
}

// token is the n-th delta of a run: a word of 2 to 9 letters, so that batches compress as prose does.
func token(run, n int) string {
	x := uint64(run)*0x9e3779b97f4a7c15 + uint64(n)*0xd1b54a32d192ed03
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 32
	word := make([]byte, 0, 10)
	for i := range 3 + x%8 {
		word = append(word, "etaoinshrdlucmfw"[x>>(8+4*i)&15])
	}
	word[0] = ' '
	return string(word)
}

// record is one record of run i. Runs of one thread follow each other: run i is a turn of the thread
// that its place among the open ones names.
func (l load) record(i, step int, partitions int32) *kgo.Record {
	round, place := i/l.open, i%l.open
	turn := round % l.turns
	thread := fmt.Sprintf("thread-%08d-%04d", round/l.turns, place)
	run := fmt.Sprintf("run-%08d", i)
	message := func(turn int) string { return fmt.Sprintf("%08x-7c1e-4b5a-9d3f-%012x", uint32(place)*2654435761, turn) }
	kind := record.KindEvent
	var value string
	switch step {
	case 0:
		kind = record.KindInput
		messages := []byte{}
		for t := range turn + 1 {
			messages = fmt.Appendf(messages, `{"id":"user-%04d","role":"user","content":"What is the weather like in the town that I asked for?"},`, t)
			if t < turn {
				messages = fmt.Appendf(messages, `{"id":%q,"role":"assistant","content":"`, message(t))
				for n := range l.deltas { // as the run that is answered has sent them
					messages = append(messages, token(i-(turn-t)*l.open, n)...)
				}
				messages = append(messages, `"},`...)
			}
		}
		value = fmt.Sprintf(`{"threadId":%q,"runId":%q,"state":{},"messages":[%s],"tools":[],"context":[],"forwardedProps":{}}`,
			thread, run, messages[:len(messages)-1])
	case 1:
		value = fmt.Sprintf(`{"type":"RUN_STARTED","timestamp":1767225600000,"threadId":%q,"runId":%q}`, thread, run)
	case 2:
		value = fmt.Sprintf(`{"type":"TEXT_MESSAGE_START","timestamp":1767225600000,"messageId":%q,"role":"assistant"}`, message(turn))
	case l.deltas + 3:
		value = fmt.Sprintf(`{"type":"TEXT_MESSAGE_END","timestamp":1767225600000,"messageId":%q}`, message(turn))
	case l.deltas + 4:
		value = fmt.Sprintf(`{"type":"RUN_FINISHED","timestamp":1767225600000,"threadId":%q,"runId":%q}`, thread, run)
	default:
		value = fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","timestamp":%d,"messageId":%q,"delta":%q}`, 1767225600000+step*10, message(turn), token(i, step))
	}
	key, err := record.ThreadKey("acme", thread)
	if err != nil {
		panic(err) // the ids above are right
	}
	return &kgo.Record{
		Partition: record.Partition([]byte(key), partitions),
		Key:       []byte(key), Value: []byte(value),
		Headers: kafka.Headers(record.Headers{Kind: kind, RunID: run, Seq: -1}),
	}
}

// send produces the whole load, at a rate in records a second or, at 0, as fast as it goes.
func (l load) send(tb testing.TB, cfg kafka.Config, partitions int32, rate int) {
	tb.Helper()
	produceAll(tb, cfg, rate, func(yield func(*kgo.Record) bool) { l.each(partitions, yield) })
}

// produceAll sends records to skein.events.
func produceAll(tb testing.TB, cfg kafka.Config, rate int, all iter.Seq[*kgo.Record]) {
	tb.Helper()
	ctx := tb.Context()
	producer, err := kafka.NewProducer(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	defer producer.Close()
	var refused atomic.Pointer[error]
	topic := cfg.Topics().Events
	began, n := time.Now(), 0
	all(func(m *kgo.Record) bool {
		if rate > 0 && n%max(1, rate/100) == 0 {
			if ahead := time.Duration(n)*time.Second/time.Duration(rate) - time.Since(began); ahead > 0 {
				time.Sleep(ahead) // the pace is what is measured
			}
		}
		n++
		m.Topic = topic
		producer.Produce(ctx, m, func(_ *kgo.Record, err error) {
			if err != nil {
				refused.Store(&err)
			}
		})
		return refused.Load() == nil
	})
	if err := producer.Flush(ctx); err != nil {
		tb.Fatal(err)
	}
	if err := refused.Load(); err != nil {
		tb.Fatal(*err)
	}
}
