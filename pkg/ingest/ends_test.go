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
	cfg := kafkatest.Start(t, 1)
	e, err := newEndReader(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.close)
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
