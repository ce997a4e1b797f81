package query

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/skeinhq/skein/pkg/kafka"
)

// readers is how many records are read from Kafka at the same time; further calls wait.
const readers = 16

// recordWait bounds the reading of one record, including the wait for a slot. Without a bound a client would retry
// unavailable brokers for as long as the caller stays.
const recordWait = 5 * time.Second

// KafkaRecords reads records of skein.runs from Kafka. All reads share one client, which lives from the first read to
// Close.
type KafkaRecords struct {
	cfg   kafka.Config
	slots chan struct{}
	wait  time.Duration

	mu     sync.Mutex
	reader *kafka.RecordReader // nil before the first read
}

// NewKafkaRecords returns a reader for a topic set. Close it.
func NewKafkaRecords(cfg kafka.Config) *KafkaRecords {
	return &KafkaRecords{cfg: cfg, slots: make(chan struct{}, readers), wait: recordWait}
}

// Close closes the connections. Reads in progress fail.
func (k *KafkaRecords) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reader != nil {
		k.reader.Close()
	}
}

// open returns the shared reader, and creates it for the first read.
func (k *KafkaRecords) open() (*kafka.RecordReader, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reader != nil {
		return k.reader, nil
	}
	var err error
	k.reader, err = kafka.NewRecordReader(k.cfg, k.cfg.Topics().Runs)
	return k.reader, err
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
