package kafka_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// Records of 14 MB of one letter are 2 KB where they are sent: an answer within FetchMaxBytes has hundreds of them.
func TestNewGroupReader_UnpacksNoMoreThanItHolds(t *testing.T) {
	kafkatest.OnBoth(t, 2, func(t *testing.T, cfg kafka.Config) {
		const each, size = 8, 14 << 20
		topic, value := cfg.Topics().Runs, bytes.Repeat([]byte("x"), size)
		for i := range 2 * each {
			kafkatest.Produce(t, cfg, &kgo.Record{Topic: topic, Partition: int32(i % 2), Key: []byte("k"), Value: value})
		}
		reader, err := kafka.NewGroupReader(cfg, kafka.GroupOptions{Group: "g-" + topic, Topics: []string{topic}})
		if err != nil {
			t.Fatal(err)
		}
		defer reader.CloseAllowingRebalance()
		next := map[int32]int64{}
		for got, most := 0, 16<<20+size; got < 2*each; {
			fetches := reader.PollFetches(t.Context())
			for _, e := range fetches.Errors() {
				if !errors.Is(e.Err, kafka.ErrUnpackLater) {
					t.Fatal(e.Err)
				}
			}
			held := 0
			fetches.EachRecord(func(m *kgo.Record) {
				if m.Offset != next[m.Partition] || len(m.Value) != size {
					t.Fatalf("at %d of partition %d are %d bytes, want offset %d", m.Offset, m.Partition, len(m.Value), next[m.Partition])
				}
				next[m.Partition]++
				held += len(m.Value)
				got++
			})
			if held > most {
				t.Errorf("an answer unpacks to %d bytes, want %d at most", held, most)
			}
			reader.AllowRebalance()
		}

		// A reader that is lent for one partition is bounded as well, and is told of no error.
		readers := kafka.NewReaders(cfg, topic, 0)
		defer readers.Close()
		lent, err := readers.Lend()
		if err != nil {
			t.Fatal(err)
		}
		defer readers.Return(lent, 0)
		lent.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}})
		for got, most := 0, 4<<20+size; got < each; {
			fetches := lent.PollFetches(t.Context())
			if err := fetches.Err(); err != nil {
				t.Fatal(err)
			}
			if got += fetches.NumRecords(); fetches.NumRecords()*size > most {
				t.Errorf("an answer to a lent reader unpacks to %d records of %d bytes, want %d bytes at most", fetches.NumRecords(), size, most)
			}
		}
	})
}

// A reader that looks for few records holds one answer and the next, not one of each broker.
func TestOneAnswer_HoldsNoMoreOfManyBrokers(t *testing.T) {
	const partitions, each, size = 8, 2, 14 << 20
	cfg := kafkatest.StartCluster(t, partitions, kafkatest.WithBrokers(4)).Config
	topic, value := cfg.Topics().Runs, bytes.Repeat([]byte("x"), size)
	from := map[int32]int64{}
	for p := range int32(partitions) {
		from[p] = 0
		for range each {
			kafkatest.Produce(t, cfg, &kgo.Record{Topic: topic, Partition: p, Key: []byte("k"), Value: value})
		}
	}
	limits, err := kafka.OneAnswer()
	if err != nil {
		t.Fatal(err)
	}
	reader, err := kafka.NewDirectReader(cfg, topic, from, limits...)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	const most = 16<<20 + size
	for got := 0; got < partitions*each; {
		fetches := reader.PollFetches(t.Context())
		for _, e := range fetches.Errors() {
			if !errors.Is(e.Err, kafka.ErrUnpackLater) {
				t.Fatal(e.Err)
			}
		}
		got += fetches.NumRecords()
		if held := fetches.NumRecords() * size; held > most {
			t.Errorf("a poll has %d bytes, want %d at most", held, most)
		}
		if wait := reader.BufferedFetchBytes(); wait > most {
			t.Errorf("%d bytes wait beside it, want %d at most", wait, most)
		}
	}
}
