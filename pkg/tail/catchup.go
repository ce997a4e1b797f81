package tail

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
)

// catchUps bounds and serves the reads of records that are no longer in a ring.
type catchUps struct {
	cfg     Config
	topic   string
	slots   chan struct{}
	readers *kafka.Readers
}

func newCatchUps(cfg Config, topic string) *catchUps {
	return &catchUps{
		cfg: cfg, topic: topic, slots: make(chan struct{}, cfg.CatchUps),
		readers: kafka.NewReaders(cfg.Kafka, topic, cfg.CatchUps, kgo.KeepControlRecords(), kgo.FetchMaxPartitionBytes(catchUpFetch), kgo.FetchMaxBytes(catchUpFetch)),
	}
}

func (t *Tail) catchUp() *catchUp { return &catchUp{of: t.catchUps, tail: t} }

// catchUp reads one partition from the log for one reader.
type catchUp struct {
	of     *catchUps
	tail   *Tail
	client *kgo.Client // nil before the first read
	id     int32
	// polled are records from the client that the reader has not returned yet.
	polled []*kgo.Record
	// failed: the client has returned an error, so it is not used again.
	failed bool
}

// catchUpFetch bounds one fetch response, compressed.
const catchUpFetch = 256 << 10

// open waits for a free slot and takes a client.
func (c *catchUp) open(ctx context.Context, r *Reader) error {
	select {
	case c.of.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.tail.ctx.Done():
		return ErrClosed
	}
	c.tail.metrics.catchUps.Inc()
	c.id = r.p.id
	var err error
	if c.client, err = c.of.readers.Lend(); err != nil {
		<-c.of.slots
		return err
	}
	c.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{c.of.topic: {c.id: kgo.NoResetOffset().At(r.next)}})
	return nil
}

// read returns up to batchBytes of records of the reader's thread and advances the reader. A batch without records means that it
// has read records of other threads only.
func (c *catchUp) read(ctx context.Context, r *Reader) (Batch, error) {
	if c.client == nil {
		if err := c.open(ctx, r); err != nil {
			return Batch{}, fmt.Errorf("catching up: %w", err)
		}
	}
	if len(c.polled) == 0 {
		if err := c.poll(ctx, r); err != nil {
			return Batch{}, err
		}
		if len(c.polled) == 0 {
			return Batch{Through: r.next, Away: true}, nil
		}
	}
	b, bytes := Batch{}, 0
	for len(c.polled) > 0 && bytes < batchBytes {
		m := c.polled[0]
		c.polled = c.polled[1:]
		if m.Offset < r.next {
			continue
		}
		r.next = m.Offset + 1
		if !m.Attrs.IsControl() && string(m.Key) == r.key {
			b.Records = append(b.Records, m)
			bytes += size(m)
		}
	}
	b.Through = r.next
	return b, nil
}

// poll waits for records until brokers have not answered for a while.
func (c *catchUp) poll(ctx context.Context, r *Reader) error {
	wait, cancel := context.WithTimeout(ctx, c.of.cfg.Away)
	defer cancel()
	stop := context.AfterFunc(c.tail.ctx, cancel)
	defer stop()
	fetches := c.client.PollRecords(wait, pollRecords)
	if c.polled = fetches.Records(); len(c.polled) > 0 { // even if ctx is over: the client does not return them again
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.tail.ctx.Err() != nil {
		return ErrClosed
	}
	for _, e := range fetches.Errors() {
		switch {
		case errors.Is(e.Err, context.DeadlineExceeded):
		case errors.Is(e.Err, kerr.OffsetOutOfRange):
			c.failed = true
			return fmt.Errorf("catching up from offset %d: %w: %w", r.next, ErrGone, e.Err)
		default:
			c.failed = true
			return fmt.Errorf("catching up: %w", e.Err)
		}
	}
	return nil
}

// end returns the client.
func (c *catchUp) end() {
	if c.client == nil {
		return
	}
	if c.failed {
		c.client.Close()
	} else {
		c.of.readers.Return(c.client, c.id)
	}
	c.client, c.polled = nil, nil
	<-c.of.slots
}
