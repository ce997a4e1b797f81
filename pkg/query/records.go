package query

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
)

// readers is how many records are read from Kafka at the same time; further calls wait their turn.
const readers = 16

// recordWait bounds the reading of one record, the wait for a turn included. A client without a bound
// asks brokers that are away for as long as the caller stays.
const recordWait = 5 * time.Second

// KafkaRecords reads records of skein.runs from Kafka, each with a client of its own: positions and
// buffers are not shared, and nothing is left behind by a call that is given up.
type KafkaRecords struct {
	cfg   kafka.Config
	slots chan struct{}
	wait  time.Duration
}

// NewKafkaRecords returns a reader for a topic set.
func NewKafkaRecords(cfg kafka.Config) *KafkaRecords {
	return &KafkaRecords{cfg: cfg, slots: make(chan struct{}, readers), wait: recordWait}
}

// Record implements RecordReader.
func (k *KafkaRecords) Record(ctx context.Context, partition int32, offset int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, k.wait)
	defer cancel()
	select {
	case k.slots <- struct{}{}:
		defer func() { <-k.slots }()
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting to read a record: %w", ctx.Err())
	}
	topic := k.cfg.Topics().Runs
	// With control records, the poll ends also where compaction has left nothing but markers. An answer has a batch in any case, however
	// large (KIP-74), and here it is to have no more: what lies behind would be unpacked for nothing.
	cl, err := kafka.NewDirectReader(k.cfg, topic, map[int32]int64{partition: offset}, kgo.KeepControlRecords(), kgo.FetchMaxPartitionBytes(1))
	if err != nil {
		return nil, fmt.Errorf("reading record: %w", err)
	}
	defer cl.Close()
	for {
		fetches := cl.PollRecords(ctx, 1)
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("reading record %d:%d of %s: %w", partition, offset, topic, err)
		}
		for _, f := range fetches.Errors() {
			if errors.Is(f.Err, kerr.OffsetOutOfRange) {
				return nil, fmt.Errorf("%w: %d:%d of %s", ErrRecordGone, partition, offset, topic)
			}
			return nil, fmt.Errorf("reading record %d:%d of %s: %w", partition, offset, topic, f.Err)
		}
		for _, r := range fetches.Records() {
			if r.Offset != offset || r.Attrs.IsControl() {
				return nil, fmt.Errorf("%w: %d:%d of %s", ErrRecordGone, partition, offset, topic)
			}
			if _, err := kafka.ParseHeaders(r.Headers); err != nil {
				return nil, fmt.Errorf("reading record %d:%d of %s: %w", partition, offset, topic, err)
			}
			return r.Value, nil
		}
	}
}
