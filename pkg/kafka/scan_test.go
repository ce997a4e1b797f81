package kafka_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

func TestScan_EndsAtARecordOfANewerVersion(t *testing.T) {
	cfg := kafkatest.Start(t, 1)
	topic := cfg.Topics().Runs
	for _, version := range []int{1, 2, 1} {
		kafkatest.Produce(t, cfg, &kgo.Record{Topic: topic, Key: []byte("k"),
			Headers: kafka.Headers(record.Headers{Version: version, Kind: record.KindRun, Seq: -1})})
	}
	read := 0
	for _, err := range kafka.Scan(t.Context(), cfg, topic, map[int32]kafka.Span{0: {Start: 0, End: 3}}) {
		if err == nil {
			read++
		} else if want := "reading " + topic + "/0 at offset 1: reading header skein-version: unknown record version 2, this program knows up to 1"; err.Error() != want || !errors.Is(err, record.ErrUnknownVersion) {
			t.Errorf("it ends with %v, want %s", err, want)
		}
	}
	if read != 1 {
		t.Errorf("%d records were read, want the one before", read)
	}
}

// What was aborted is passed over, also where the marker that says so is in a later answer.
func TestScan_PassesOverLargeAbortedTransactions(t *testing.T) {
	kafkatest.OnBoth(t, 2, func(t *testing.T, cfg kafka.Config) {
		topic := cfg.Topics().Events
		tx, err := kafka.NewProducer(cfg, kgo.TransactionalID(topic), kgo.ProducerBatchCompression(kgo.NoCompression()))
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Close()
		for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
			if err := tx.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			for range 3 { // a batch each
				if err := tx.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: 1, Key: []byte("k"),
					Value: make([]byte, 3<<20)}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			if err := tx.EndTransaction(t.Context(), end); err != nil {
				t.Fatal(err)
			}
		}
		var got []int64
		for m, err := range kafka.Scan(t.Context(), cfg, topic, map[int32]kafka.Span{1: {End: 8}}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, m.Offset)
		}
		if want := []int64{4, 5, 6}; !slices.Equal(got, want) {
			t.Errorf("it reads %v, want %v", got, want)
		}
	})
}

func TestUnsettled_IsWhatLiesInAnOpenTransactionAndBehindIt(t *testing.T) {
	kafkatest.OnBoth(t, 2, func(t *testing.T, cfg kafka.Config) {
		adm, topic := kafkatest.Admin(t, cfg), cfg.Topics().Runs
		rec := func() *kgo.Record {
			return &kgo.Record{Topic: topic, Partition: 1, Key: []byte("k"), Value: []byte("x")}
		}
		unsettled := func() map[int32]kafka.Span {
			t.Helper()
			open, err := kafka.Unsettled(t.Context(), adm, topic)
			if err != nil {
				t.Fatal(err)
			}
			return open
		}
		kafkatest.Produce(t, cfg, rec())
		if open := unsettled(); len(open) > 0 {
			t.Errorf("without a transaction it is %v", open)
		}
		tx, err := kafka.NewProducer(cfg, kgo.TransactionalID(topic))
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Close()
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := tx.ProduceSync(t.Context(), rec()).FirstErr(); err != nil {
			t.Fatal(err)
		}
		kafkatest.Produce(t, cfg, rec())
		if open := unsettled(); len(open) != 1 || open[1] != (kafka.Span{Start: 1, End: 3}) {
			t.Errorf("with one it is %v", open)
		}
		if err := tx.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
		for len(unsettled()) > 0 { // the markers come after the end
			if err := t.Context().Err(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
