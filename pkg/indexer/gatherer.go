package indexer

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
)

// gatherer decodes records into a block while the writer writes the previous one. If the block is full, the gatherer waits for the
// writer; if the backlog is full, the poller waits for the gatherer.
type gatherer struct {
	*Service
	client  *kgo.Client
	backlog backlog
	block   *block
	blocks  chan<- *block
	last    time.Time // when the previous block was handed over
	// ended is closed when polling has ended.
	ended <-chan struct{}
}

// gatherFor is how long a block collects records after a pause. One transaction of a compactor comes in several fetches.
const gatherFor = 20 * time.Millisecond

// sliceBytes is how much is decoded before the gatherer takes in the next poll.
const sliceBytes = 256 << 10

// run decodes polled records until polling ends, hands over the last block and closes the channel of blocks. The partition's next owner
// reads records again that are in no block. run also returns when ctx ends.
func (g *gatherer) run(ctx context.Context, in <-chan polled) {
	defer close(g.blocks)
	always := make(chan struct{})
	close(always)
	for {
		goesOn, full := g.decode(ctx)
		var out chan<- *block
		var wait <-chan time.Time
		var more <-chan struct{}
		if goesOn {
			more = always
		}
		if !g.block.opened.IsZero() {
			// A block after a pause is written at once: MaxDelay bounds how many blocks there are, and how long records wait.
			due := g.last.Add(g.cfg.MaxDelay)
			if soon := g.block.opened.Add(min(gatherFor, g.cfg.MaxDelay)); soon.After(due) {
				due = soon
			}
			if left := time.Until(due); left > 0 && !full {
				wait = time.After(left)
			} else {
				out = g.blocks
			}
		}
		polls := in
		if g.backlog.bytes > backlogBytes || g.backlog.waiting() >= max(1, g.owned.len()) { // all partitions have records
			polls = nil
		}
		select {
		case p := <-polls:
			g.backlog.add(p)
		case <-g.ended:
			g.handOver(ctx)
			return
		case out <- g.block:
			g.handedOver()
		case <-more:
		case <-wait:
		case <-ctx.Done():
			return
		}
	}
}

// decode decodes up to sliceBytes of the backlog into the block, taking turns between partitions. The result goesOn means that there is
// more to decode, full that the block has no space for it.
func (g *gatherer) decode(ctx context.Context) (goesOn, full bool) {
	owned := max(1, g.owned.len())
	size := g.size.bytes()
	if g.backlog.deep(size/int64(owned)) >= owned { // all partitions have a backlog, so no new record waits because of a large block
		size = g.cfg.MaxBytes
	}
	for decoded := int64(0); decoded < sliceBytes; {
		q := g.backlog.next(size)
		if q == nil {
			return false, g.backlog.waiting() > 0
		}
		decoded += memoryOf(q.records[0])
		if !g.take(ctx, q) {
			return false, true
		}
	}
	return true, false
}

// take decodes the first record of a queue into the block, or returns false if the block has no space for it.
func (g *gatherer) take(ctx context.Context, q *queue) bool {
	r := q.records[0]
	if g.metrics.stops.Has(r.Partition) || g.owned.epoch(r.Partition) != q.epoch {
		g.backlog.drop(q, 1) // the partition has stopped, or its next owner reads the record
		return true
	}
	if !q.decoded {
		if err := kafka.CheckVersion(r); err != nil {
			g.stop(ctx, r, q.epoch, err)
			g.backlog.drop(q, 1)
			return true
		}
		q.head, q.decoded = g.entry(ctx, r, q.epoch), true
	}
	e := q.head
	if g.block.full(e.bytes, g.cfg.maxRecords, g.cfg.MaxBytes) {
		return false
	}
	g.metrics.lag.Read(r.Partition, r.Timestamp)
	g.block.read(r, q.epoch, time.Now())
	if e.written {
		g.block.add(e)
	}
	q.gathered += e.bytes
	g.backlog.drop(q, 1)
	return true
}

// entry decodes a record. Fences and undecodable records become no row.
func (g *gatherer) entry(ctx context.Context, r *kgo.Record, epoch int64) entry {
	decoded, what, err := decode(r)
	g.metrics.records.WithLabelValues(string(what)).Inc()
	e := entry{Entry: decoded, bytes: sizeOf(decoded, r), epoch: epoch, timestamp: r.Timestamp}
	switch {
	case err != nil:
		g.cfg.Logger.WarnContext(ctx, "record skipped", "topic", r.Topic, "partition", r.Partition, "offset", r.Offset, "error", err)
	case what != outcomeFence:
		e.written = true
	}
	return e
}

// handOver waits until the writer takes the block, or ctx ends.
func (g *gatherer) handOver(ctx context.Context) {
	if g.block.opened.IsZero() {
		return
	}
	select {
	case g.blocks <- g.block:
		g.handedOver()
	case <-ctx.Done():
	}
}

// handedOver opens a new block. The last one counts in the lag until the writer has written it.
func (g *gatherer) handedOver() {
	g.metrics.lag.Taken(slices.Collect(maps.Keys(g.block.progress))...)
	g.block, g.last = newBlock(), time.Now()
	g.backlog.opened()
}

// stop stops reading a partition at a record of a newer Skein. Earlier records are written and committed, so after an upgrade the
// partition's owner begins with this record.
func (g *gatherer) stop(ctx context.Context, r *kgo.Record, epoch int64, err error) {
	stopped := g.owned.ifCurrent(r.Partition, epoch, func() {
		g.client.PauseFetchPartitions(map[string][]int32{r.Topic: {r.Partition}})
		g.metrics.stops.Add(r.Partition, err)
	})
	if !stopped {
		return
	}
	g.metrics.records.WithLabelValues(string(outcomeUnknownVersion)).Inc()
	g.cfg.Logger.ErrorContext(ctx, "partition stopped: a newer version wrote its next record; update this process",
		"topic", r.Topic, "partition", r.Partition, "offset", r.Offset, "error", err)
}
