package query

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skeinhq/skein/pkg/kafka"
)

// recordWait bounds the reading of one record. Without a bound a client would retry unavailable brokers for as long as
// the caller stays.
const recordWait = 5 * time.Second

// KafkaRecords reads records of skein.runs from Kafka. All reads share one client.
type KafkaRecords struct {
	cfg    kafka.Config
	wait   time.Duration
	reader *kafka.RecordReader
	err    error // of making the reader
}

// NewKafkaRecords returns a reader for a topic set. It connects at the first read. Close it.
func NewKafkaRecords(cfg kafka.Config) *KafkaRecords {
	reader, err := kafka.NewRecordReader(cfg, cfg.Topics().Runs)
	return &KafkaRecords{cfg: cfg, wait: recordWait, reader: reader, err: err}
}

// Close closes the connections. Reads in progress fail.
func (k *KafkaRecords) Close() {
	if k.err == nil {
		k.reader.Close()
	}
}

// Record implements RecordReader.
func (k *KafkaRecords) Record(ctx context.Context, partition int32, offset int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, k.wait)
	defer cancel()
	topic := k.cfg.Topics().Runs
	if k.err != nil {
		return nil, fmt.Errorf("reading record: %w", k.err)
	}
	r, err := k.reader.Read(ctx, partition, offset)
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
