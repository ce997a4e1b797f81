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
		Topic: cfg.Topics().Runs, Partition: partition, Key: []byte(record.ProgressKey),
		Value:   record.EncodeProgress(record.Progress{Next: next}),
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
	b.read(&kgo.Record{Partition: partition, Offset: offset}, epoch, time.Unix(1, 0))
	b.add(entry{Entry: store.Entry{Partition: partition, Version: offset, Position: &store.Position{Next: next}}, epoch: epoch})
}

func TestBlock_HasPositionsAlone(t *testing.T) {
	b := newBlock()
	putPosition(b, 0, 1, 10, 1)
	putPosition(b, 1, 1, 20, 2)
	b = b.kept(func(partition int32, epoch int64) bool { return partition == 1 && epoch == 2 })
	if e := b.ordered(); len(e) != 1 || e[0].Position.Next != 20 || b.opened.IsZero() {
		t.Errorf("entries %+v of a block in which only partition 1 is ours", e)
	}
}
