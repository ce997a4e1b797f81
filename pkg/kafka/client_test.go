package kafka_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

func timeout(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kafkatest.Timeout)
	t.Cleanup(cancel)
	return ctx
}

// TestRecordPartition_AgreesWithTheClient compares with kgo's own Java-compatible partitioner.
func TestRecordPartition_AgreesWithTheClient(t *testing.T) {
	p := kgo.StickyKeyPartitioner(nil).ForTopic("t")
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		key := make([]byte, 1+rng.IntN(60))
		for i := range key {
			key[i] = byte(rng.Uint32())
		}
		n := 1 + rng.IntN(50)
		if got, want := record.Partition(key, int32(n)), p.Partition(&kgo.Record{Key: key}, n); got != int32(want) {
			t.Fatalf("partition of %x among %d is %d, want %d", key, n, got, want)
		}
	}
}

// A value of the limit must pass every size on its way, compressible or not.
func TestProducer_TakesAValueOfTheLimit(t *testing.T) {
	cfg := kafkatest.Start(t, 1)
	noise := make([]byte, kafka.MaxValueBytes)
	rng := rand.NewChaCha8([32]byte{1})
	if _, err := rng.Read(noise); err != nil {
		t.Fatal(err)
	}
	values := [][]byte{bytes.Repeat([]byte("a"), kafka.MaxValueBytes), noise, []byte("{}")}
	longKey := bytes.Repeat([]byte("%00"), 3*512)
	longHeaders := kafka.Headers(record.Headers{Kind: record.KindEvent, RunID: string(bytes.Repeat([]byte("r"), 512)), Seq: 1,
		Agent: string(bytes.Repeat([]byte("s"), 512))})
	for _, v := range values {
		kafkatest.Produce(t, cfg, &kgo.Record{Topic: cfg.Topics().Events, Key: longKey, Value: v, Headers: longHeaders})
	}
	got := kafkatest.Consume(t, cfg, cfg.Topics().Events)
	if len(got) != len(values) {
		t.Fatalf("read %d records, want %d", len(got), len(values))
	}
	for i, v := range values {
		if sha256.Sum256(got[i].Value) != sha256.Sum256(v) {
			t.Errorf("value %d has changed: %d bytes, want %d", i, len(got[i].Value), len(v))
		}
	}
}

func TestProducer_WritesZstdToTheGivenPartition(t *testing.T) {
	cfg := kafkatest.Start(t, 3)
	value := bytes.Repeat([]byte(`{"type":"TEXT_MESSAGE_CONTENT"}`), 100)
	kafkatest.Produce(t, cfg, &kgo.Record{Topic: cfg.Topics().Events, Partition: 2, Key: []byte("k"), Value: value})
	got := kafkatest.Consume(t, cfg, cfg.Topics().Events)
	if len(got) != 1 || got[0].Partition != 2 || got[0].Attrs.CompressionType() != 4 {
		t.Fatalf("records are %+v; want one on partition 2, compressed with codec 4 (zstd)", got)
	}
}

func TestClients_MetricsOfTwoOfAKindAreAnErrorAndNoPanic(t *testing.T) {
	cfg := kafkatest.Start(t, 1)
	reg := prometheus.NewRegistry()
	cfg.Registerer = reg
	first, err := kafka.NewProducer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kafka.NewProducer(cfg); err == nil {
		t.Fatal("a second producer of the same id was made")
	}
	if err := first.ProduceSync(timeout(t), &kgo.Record{Topic: cfg.Topics().Events, Value: []byte("{}")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil || len(families) == 0 {
		t.Errorf("the first producer's metrics are gone: %v", err)
	}
	first.Close()
	again, err := kafka.NewProducer(cfg)
	if err != nil {
		t.Fatalf("after the first was closed: %v", err)
	}
	again.Close()
}

// Raw events that are gone must be seen and counted by the caller, who then says where to go on.
func TestDirectReader_AnOffsetThatIsGoneIsAnError(t *testing.T) {
	c := kafkatest.StartCluster(t, 1)
	topic := c.Config.Topics().Events
	for i := range 5 {
		kafkatest.Produce(t, c.Config, &kgo.Record{Topic: topic, Value: fmt.Append(nil, i)})
	}
	if err := c.Fake.DeleteRecords(topic, 0, 3); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]int64{"below the start": 1, "above the end": 99} {
		t.Run(name, func(t *testing.T) {
			cl, err := kafka.NewDirectReader(c.Config, topic, map[int32]int64{0: from})
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			ctx := timeout(t)
			if err := cl.PollFetches(ctx).Err(); !errors.Is(err, kerr.OffsetOutOfRange) {
				t.Fatalf("error is %v, want OFFSET_OUT_OF_RANGE", err)
			}
			cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: 3}}})
			f := cl.PollFetches(ctx)
			if err := f.Err(); err != nil || f.NumRecords() == 0 || f.Records()[0].Offset != 3 {
				t.Errorf("after setting an offset: %v, %v", f.Records(), err)
			}
		})
	}
}
