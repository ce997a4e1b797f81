package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

func TestRecordReader_ReadsOneRecord(t *testing.T) {
	k := kafkatest.Start(t, 2)
	newRecord := func(i int) *kgo.Record {
		return &kgo.Record{
			Topic: k.Topics().Runs, Partition: 1, Key: []byte("acme/thread/run"), Value: fmt.Appendf(nil, "value %d", i),
			Headers: kafka.Headers(record.Headers{Kind: record.KindRun, Seq: -1}),
		}
	}
	var records []*kgo.Record
	for i := range 5 {
		records = append(records, newRecord(i))
	}
	kafkatest.Produce(t, k, records...)

	// Two transactions: an aborted one, and after it the marker of a committed one is the last.
	tx, err := kafka.NewProducer(k, kgo.TransactionalID("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close()
	var aborted, last *kgo.Record
	for _, c := range []struct {
		r   **kgo.Record
		end kgo.TransactionEndTry
	}{{&aborted, kgo.TryAbort}, {&last, kgo.TryCommit}} {
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		*c.r = newRecord(9)
		if err := tx.ProduceSync(t.Context(), *c.r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := tx.EndTransaction(t.Context(), c.end); err != nil {
			t.Fatal(err)
		}
	}

	reader := newRecordReader(t, k)
	for i := range 5 {
		if got, err := reader.Read(t.Context(), 1, int64(i)); err != nil || string(got.Value) != fmt.Sprint("value ", i) {
			t.Errorf("offset %d: %v, %v", i, got, err)
		}
	}
	if got, err := reader.Read(t.Context(), 1, last.Offset); err != nil || string(got.Value) != "value 9" {
		t.Errorf("the last one: %v, %v", got, err)
	}
	for name, offset := range map[string]int64{
		"aborted": aborted.Offset, "a marker": last.Offset + 1, "beyond the end": last.Offset + 100,
	} {
		if got, err := reader.Read(t.Context(), 1, offset); !errors.Is(err, kafka.ErrNoRecord) {
			t.Errorf("%s: %v, %v; want ErrNoRecord", name, got, err)
		}
	}
}

// One record is read with its batch, and not with all that lies behind it.
func TestRecordReader_ReadsOneBatch(t *testing.T) {
	cluster := kafkatest.StartCluster(t, 1)
	var values []string
	for i := range 3 { // a batch each
		values = append(values, strings.Repeat(fmt.Sprint(i), 100_000))
		kafkatest.Produce(t, cluster.Config, &kgo.Record{Topic: cluster.Config.Topics().Runs, Value: []byte(values[i])})
	}
	var most atomic.Int64 // bytes that are asked for beyond a batch
	cluster.Fake.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.Fake.KeepControl()
		for _, t := range req.(*kmsg.FetchRequest).Topics {
			for _, p := range t.Partitions {
				most.Store(max(most.Load(), int64(p.PartitionMaxBytes)))
			}
		}
		return nil, nil, false
	})
	reader := newRecordReader(t, cluster.Config)
	for i, want := range values {
		if got, err := reader.Read(t.Context(), 0, int64(i)); err != nil || string(got.Value) != want {
			t.Errorf("offset %d: %v, %v", i, got, err)
		}
	}
	if n := most.Load(); n != 1 {
		t.Errorf("%d bytes beyond a batch are asked for, want 1, the least", n)
	}
}

// Each connection begins with ApiVersions: reads that follow each other make no new ones.
func TestRecordReader_ShareOneClient(t *testing.T) {
	cluster := kafkatest.StartCluster(t, 1)
	kafkatest.Produce(t, cluster.Config, &kgo.Record{Topic: cluster.Config.Topics().Runs, Value: []byte("x")})
	reader := newRecordReader(t, cluster.Config)
	read := func() {
		t.Helper()
		if _, err := reader.Read(t.Context(), 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	read()
	var connections atomic.Int64
	cluster.Fake.ControlKey(int16(kmsg.ApiVersions), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.Fake.KeepControl()
		connections.Add(1)
		return nil, nil, false
	})
	for range 10 {
		read()
	}
	if n := connections.Load(); n > 0 {
		t.Errorf("10 reads made %d connections", n)
	}
}

func TestRecordReader_GivesUpWithItsCaller(t *testing.T) {
	reader := newRecordReader(t, kafka.Config{Brokers: []string{"127.0.0.1:1"}})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := reader.Read(ctx, 0, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func newRecordReader(t *testing.T, k kafka.Config) *kafka.RecordReader {
	t.Helper()
	reader, err := kafka.NewRecordReader(k, k.Topics().Runs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reader.Close)
	return reader
}
