package indexer

import (
	"bytes"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

func positionRecord(cfg kafka.Config, partition int32, next int64) *kgo.Record {
	return &kgo.Record{
		Topic: cfg.Topics().Runs, Partition: partition, Key: []byte(record.ProgressKey), Value: record.EncodeProgress(record.Progress{Next: next}),
		Headers: kafka.Headers(record.Headers{Kind: record.KindProgress, Seq: -1}),
	}
}

func TestService_IndexesPositions(t *testing.T) {
	k := kafkatest.Start(t, 2)
	cfg, st := testConfig(k), newFakeStore()
	var log bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	broken := positionRecord(k, 1, 99)
	broken.Value = []byte(`{"next":"99"}`)
	kafkatest.Produce(t, k,
		fence(k, 0),
		positionRecord(k, 0, 4),
		runRecord(t, k, 0, "a", record.StatusFinished),
		positionRecord(k, 0, 7),
		positionRecord(k, 1, 3), // all that this partition has: dead letters
		broken,
	)
	s := start(t, cfg, st)
	seen := func(what outcome) float64 { return testutil.ToFloat64(s.metrics.records.WithLabelValues(string(what))) }
	until(t, "all is read", func() bool {
		return seen(outcomeProgress)+seen(outcomeFence)+seen(outcomeRun)+seen(outcomeUndecodable) == 6
	})
	if err := s.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if got := committed(t, cfg); !maps.Equal(got, map[int32]int64{0: 4, 1: 2}) {
		t.Errorf("committed %v", got)
	}
	if !maps.Equal(st.next, map[int32]int64{0: 7, 1: 3}) || st.text() != "acme/thread/a 0:2 finished\n" {
		t.Errorf("positions %v, rows %q", st.next, st.text())
	}
	for what, want := range map[outcome]float64{outcomeProgress: 3, outcomeFence: 1, outcomeRun: 1, outcomeUndecodable: 1} {
		if got := seen(what); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	if n := strings.Count(log.String(), "record skipped"); n != 1 {
		t.Errorf("%d lines for a position that cannot be read:\n%s", n, log.String())
	}
}

func putPosition(b *block, partition int32, offset, next, epoch int64) {
	r := &kgo.Record{Partition: partition, Offset: offset, Value: record.EncodeProgress(record.Progress{Next: next})}
	b.read(r, epoch, time.Unix(1, 0))
	b.add(store.Entry{Partition: partition, Version: offset, Position: &store.Position{Next: next}}, r, epoch)
}

// A position says that what lies before it is there: it must not be written before that is.
func TestBlock_WritesPositionsAfterAllThatTheySpeakOf(t *testing.T) {
	b := newBlock()
	putPosition(b, 0, 1, 10, 1)
	put(b, 0, 2, "a", 10, 1)
	put(b, 1, 1, "b", 10, 1)
	putPosition(b, 0, 3, 11, 1)
	putPosition(b, 1, 2, 5, 1)
	put(b, 0, 4, "c", 10, 1)
	parts := b.parts(2, 1000)
	if len(parts) != 2 || len(parts[0]) != 2 || len(parts[1]) != 3 {
		t.Fatalf("parts %+v", parts)
	}
	for _, e := range parts[0] {
		if e.Position != nil {
			t.Errorf("a position in the first part: %+v", e)
		}
	}
	last := parts[1]
	if last[0].RunID != "c" || last[1].Position.Next != 11 || last[1].Version != 3 || last[2].Partition != 1 || last[2].Position.Next != 5 {
		t.Errorf("the last part: %+v", last)
	}
	if b.progress[0].next != 5 || b.progress[1].next != 3 {
		t.Errorf("progress %v", b.progress)
	}
}

func TestBlock_HasPositionsAlone(t *testing.T) {
	b := newBlock()
	putPosition(b, 0, 1, 10, 1)
	putPosition(b, 1, 1, 20, 2)
	b.keep(func(partition int32, epoch int64) bool { return partition == 1 && epoch == 2 })
	parts := b.parts(10, 1000)
	if len(parts) != 1 || len(parts[0]) != 1 || parts[0][0].Position.Next != 20 || b.opened.IsZero() {
		t.Errorf("parts %+v of a block in which only partition 1 is ours", parts)
	}
}
