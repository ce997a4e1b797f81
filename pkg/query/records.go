package query

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/skeinhq/skein/pkg/kafka"
)

// recordWait bounds the reading of one record. Without a bound a client would retry unavailable brokers for as long as
// the caller stays.
const recordWait = 5 * time.Second

// KafkaRecords reads records of skein.runs from Kafka. All reads share one client, which lives from the first read to
// Close.
type KafkaRecords struct {
	cfg  kafka.Config
	wait time.Duration
	open func() (*kafka.RecordReader, error)
}

// NewKafkaRecords returns a reader for a topic set. Close it.
func NewKafkaRecords(cfg kafka.Config) *KafkaRecords {
	return &KafkaRecords{cfg: cfg, wait: recordWait, open: sync.OnceValues(func() (*kafka.RecordReader, error) {
		return kafka.NewRecordReader(cfg, cfg.Topics().Runs)
	})}
}

// Close closes the connections. Reads in progress fail.
func (k *KafkaRecords) Close() {
	if reader, err := k.open(); err == nil {
		reader.Close()
	}
}

// Record implements RecordReader.
func (k *KafkaRecords) Record(ctx context.Context, partition int32, offset int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, k.wait)
	defer cancel()
	topic := k.cfg.Topics().Runs
	reader, err := k.open()
	if err != nil {
		return nil, fmt.Errorf("reading record: %w", err)
	}
	r, err := reader.Read(ctx, partition, offset)
	switch {
	case errors.Is(err, kafka.ErrNoRecord):
		return nil, fmt.Errorf("%w: %d:%d of %s", ErrRecordGone, partition, offset, topic)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("reading record %d:%d of %s: %w", partition, offset, topic, ctx.Err())
	case err == nil:
		_, err = kafka.ParseHeaders(r.Headers)
	}
	if err != nil {
		return nil, fmt.Errorf("reading record %d:%d of %s: %w", partition, offset, topic, err)
	}
	return r.Value, nil
}
