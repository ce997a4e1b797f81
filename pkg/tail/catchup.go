package tail

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/share"
)

func (t *Tail) catchUp(r *Reader) *catchUp {
	tenant, _, _ := strings.Cut(r.key, "/")
	return &catchUp{tail: t, tenant: tenant, id: r.p.id}
}

// catchUp reads one partition from the log for one reader.
type catchUp struct {
	tail   *Tail
	tenant string
	id     int32

	// mu is held during a read. unused calls expire between two reads.
	mu     sync.Mutex
	unused *time.Timer // nil before the first read
	// held: the catch-up has a slot. place is its place in the queue for a slot; nil if it is not in the queue. A read that ends before it
	// gets a slot keeps the place.
	held   bool
	place  *share.Place
	client *kgo.Client // nil before the first read with the slot
	// polled are records from the client that the reader has not returned yet.
	polled []*kgo.Record
	// failed: the client has returned an error, so it is not used again.
	failed bool
}

const (
	// catchUpFetch bounds one fetch response, compressed.
	catchUpFetch = 256 << 10
	// slotUnused is how long a reader keeps its slot between two reads. A stream whose client takes nothing loses the slot to another reader.
	// A quick one keeps the slot, since its Kafka client has fetched ahead.
	slotUnused = 50 * time.Millisecond
)

// take takes a slot if one is free.
func (c *catchUp) take() bool {
	c.held = c.tail.slots.Take(c.tenant, 1)
	return c.held
}

// wait waits for a free slot.
func (c *catchUp) wait(ctx context.Context) error {
	if c.held {
		return nil
	}
	if c.place == nil {
		c.place = c.tail.slots.Queue(c.tenant, 1)
	}
	select {
	case <-c.place.Ready():
		c.place, c.held = nil, true
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.tail.ctx.Done():
		return ErrClosed
	}
}

// open waits for a free slot and takes a client.
func (c *catchUp) open(ctx context.Context, r *Reader) error {
	if err := c.wait(ctx); err != nil {
		return err
	}
	c.tail.metrics.catchUps.Inc()
	var err error
	if c.client, err = c.tail.readers.Lend(); err != nil {
		return err
	}
	c.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{c.tail.topic: {c.id: kgo.NoResetOffset().At(r.next)}})
	return nil
}

// read returns about batchBytes of records of the reader's thread and advances the reader. A batch without records means that it has read
// records of other threads only or, with Away, none.
func (c *catchUp) read(ctx context.Context, r *Reader) (Batch, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unused == nil {
		c.unused = time.AfterFunc(slotUnused, c.expire)
	}
	c.unused.Stop() // an expire that runs already waits for this read; the next read then needs another slot
	defer c.unused.Reset(slotUnused)
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

// poll waits for records for at most Config.Away. It leaves polled empty if none have come.
func (c *catchUp) poll(ctx context.Context, r *Reader) error {
	wait, cancel := context.WithTimeout(ctx, c.tail.cfg.Away)
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

// expire releases the slot and the client after slotUnused without a read. It keeps a place in the queue that has no slot yet, since that
// keeps nothing from other readers.
func (c *catchUp) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.place != nil {
		select {
		case <-c.place.Ready():
		default:
			c.unused.Reset(slotUnused)
			return
		}
	}
	c.giveBack()
}

// end releases the slot, the place and the client. A later read starts again at the reader's offset.
func (c *catchUp) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.giveBack()
}

func (c *catchUp) giveBack() {
	if c.unused != nil {
		c.unused.Stop()
	}
	switch {
	case c.client == nil:
	case c.failed:
		c.client.Close()
	default:
		c.tail.readers.Return(c.client, c.id)
	}
	if c.held {
		c.tail.slots.Give(c.tenant, 1)
	}
	if c.place != nil {
		c.place.Leave()
	}
	c.place, c.client, c.polled, c.held, c.failed = nil, nil, nil, false, false
}
