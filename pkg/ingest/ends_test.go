package ingest

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

// One reader serves all calls that wait. It misses no end, in whatever order the requests are acknowledged, and takes none that came before.
func TestEndReader_MissesNoEnd(t *testing.T) {
	for _, skip := range []int64{0, 10_000} {
		t.Run(fmt.Sprintf("with %d records rather read than left out", skip), func(t *testing.T) { missesNoEnd(t, skip) })
	}
}

func missesNoEnd(t *testing.T, skip int64) {
	cfg := kafkatest.Start(t, 1)
	e, err := newEndReader(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.close)
	e.skip = skip
	offset := int64(-1)
	write := func(kind record.Kind, run, value string) int64 {
		t.Helper()
		offset++
		kafkatest.Produce(t, cfg, &kgo.Record{Topic: cfg.Topics().Events, Key: []byte("dev/t"), Value: []byte(value), Headers: kafka.Headers(record.Headers{Kind: kind, RunID: run, Seq: -1})})
		return offset
	}
	request := func(run string) int64 { t.Helper(); return write(record.KindCancel, run, `{}`) }
	end := func(run string) int64 {
		t.Helper()
		return write(record.KindEvent, run, fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":"t","runId":%q}`, run))
	}
	wait := func(run string) *endWaiter {
		w := e.wait(target{key: "dev/t", run: run, partition: 0})
		t.Cleanup(func() { e.leave(w) })
		return w
	}
	ends := func(w *endWaiter, at int64) {
		t.Helper()
		select {
		case got := <-w.ended:
			if got.err != nil || got.at.Offset != at || got.status != record.StatusFinished {
				t.Errorf("run %s ended with %+v, want offset %d", w.target.run, got, at)
			}
		case <-time.After(kafkatest.Timeout):
			t.Fatalf("run %s has not ended", w.target.run)
		}
	}
	// The later one of two requests is acknowledged first.
	first, second := wait("first"), wait("second")
	atFirst := request("first")
	endOfFirst := end("first")
	atSecond := request("second")
	e.follow(second, atSecond)
	e.follow(first, atFirst)
	ends(first, endOfFirst)
	ends(second, end("second"))

	// The end comes before the request is acknowledged.
	third, never := wait("third"), wait("never")
	atThird := request("third")
	end("never")
	endOfThird := end("third")
	ends(marked(t, e, wait, end), offset) // all of these were read
	e.follow(third, atThird)
	ends(third, endOfThird)
	e.follow(never, request("never"))
	ends(marked(t, e, wait, end), offset)
	select {
	case got := <-never.ended:
		t.Errorf("an end that came before the request is taken for one: %+v", got)
	default:
	}
}

// marked returns a wait for a run that ends now.
func marked(t *testing.T, e *endReader, wait func(string) *endWaiter, end func(string) int64) *endWaiter {
	t.Helper()
	run := fmt.Sprint("mark-", time.Now().UnixNano())
	w := wait(run)
	e.follow(w, end(run)-1)
	return w
}

// endsReader is a reader of ends over so many partitions.
func endsReader(t *testing.T, partitions int32) (*endReader, kafka.Config) {
	t.Helper()
	cfg := kafkatest.Start(t, partitions)
	e, err := newEndReader(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.close)
	return e, cfg
}

// written puts the end of a run on a partition.
func written(t *testing.T, cfg kafka.Config, partition int32, run string) {
	t.Helper()
	kafkatest.Produce(t, cfg, &kgo.Record{
		Topic: cfg.Topics().Events, Partition: partition, Key: []byte("dev/t"), Value: fmt.Appendf(nil, `{"type":"RUN_FINISHED","threadId":"t","runId":%q}`, run),
		Headers: kafka.Headers(record.Headers{Kind: record.KindEvent, RunID: run, Seq: -1}),
	})
}

// told returns what a call is told of.
func told(t *testing.T, w *endWaiter) runEnd {
	t.Helper()
	select {
	case got := <-w.ended:
		return got
	case <-time.After(kafkatest.Timeout):
		t.Fatalf("run %s has not ended", w.target.run)
		return runEnd{}
	}
}

// A partition that cannot be read is nothing to those that wait on another one.
func TestEndReader_FailsOnePartition(t *testing.T) {
	e, cfg := endsReader(t, 2)
	lost, other := e.wait(target{key: "dev/t", run: "r", partition: 0}), e.wait(target{key: "dev/t", run: "r", partition: 1})
	defer e.leave(lost)
	defer e.leave(other)
	written(t, cfg, 1, "another")
	e.follow(other, 0)
	e.follow(lost, 1000) // which the log does not have
	if got := told(t, lost); got.err == nil {
		t.Errorf("the run on the partition that cannot be read ended with %+v", got)
	}
	written(t, cfg, 1, "r")
	if got := told(t, other); got.err != nil || got.at != (record.Position{Partition: 1, Offset: 1}) {
		t.Errorf("the run on the other one ended with %+v", got)
	}
	again := e.wait(target{key: "dev/t", run: "r", partition: 0})
	defer e.leave(again)
	written(t, cfg, 0, "another")
	e.follow(again, 0)
	written(t, cfg, 0, "r")
	if got := told(t, again); got.err != nil || got.at.Offset != 1 {
		t.Errorf("once it can be read, its run ended with %+v", got)
	}
}

// What no call waits for any more is left out where it is much, or a reader that has fallen behind would come too late for all that follow.
func TestEndReader_LeavesOutWhatNobodyWaitsFor(t *testing.T) {
	cfg := kafkatest.Start(t, 1)
	client, err := kafka.NewDirectReader(cfg, cfg.Topics().Events, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	e := &endReader{topic: cfg.Topics().Events, client: client, readOn: time.Hour, skip: 10_000, partitions: map[int32]*endPartition{}} // it has read nothing
	from := func() int64 { return e.partitions[0].from }
	wait := func() *endWaiter { return e.wait(target{key: "dev/t", run: "r", partition: 0}) }
	first := wait()
	e.follow(first, 0)
	second, third := wait(), wait()
	e.follow(second, e.skip+100)
	if from() != 1 {
		t.Errorf("it goes on at %d while one waits for what is behind 0", from())
	}
	if e.leave(first); from() != 1 {
		t.Errorf("it goes on at %d while one waits for nobody knows what", from())
	}
	if e.follow(third, e.skip+90); from() != e.skip+91 {
		t.Errorf("it goes on at %d, want %d", from(), e.skip+91)
	}
	if e.leave(third); from() != e.skip+91 {
		t.Errorf("it leaves out a few records, and goes on at %d", from())
	}
	e.leave(second)
	e.partitions[0].idle.Stop()
}

func TestEndReader_ReadsAPartitionOnForAWhile(t *testing.T) {
	e, cfg := endsReader(t, 1)
	reads := func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.partitions[0] != nil
	}
	w := e.wait(target{key: "dev/t", run: "r", partition: 0})
	written(t, cfg, 0, "another")
	e.follow(w, 0)
	written(t, cfg, 0, "r")
	told(t, w)
	if e.leave(w); !reads() {
		t.Error("it is given up at once")
	}
	e.readOn = time.Millisecond
	next := e.wait(target{key: "dev/t", run: "s", partition: 0})
	e.follow(next, 1)
	written(t, cfg, 0, "s")
	if got := told(t, next); got.at.Offset != 2 {
		t.Errorf("the next run ended with %+v", got)
	}
	e.leave(next)
	deadline := time.Now().Add(kafkatest.Timeout)
	for reads() {
		if time.Now().After(deadline) {
			t.Fatal("it is read for ever")
		}
		time.Sleep(time.Millisecond)
	}
}
