package indexer

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
)

// gatherer decodes records into blocks while the writer writes the block before. Beside that one there is one block in
// memory: once it is full, the gatherer waits for the writer, and once much waits behind it, the poller waits for the gatherer.
type gatherer struct {
	*Service
	client  *kgo.Client
	backlog backlog
	block   *block
	blocks  chan<- *block
	// ended is closed once nothing more is polled.
	ended <-chan struct{}
}

// sliceBytes is how much is decoded before the gatherer looks at what else was polled.
const sliceBytes = 256 << 10

// run decodes what is polled until nothing more is, hands the last block over and closes the channel of blocks. What is in no block then
// is read again. After ctx has ended nobody takes blocks any more.
func (g *gatherer) run(ctx context.Context, in <-chan polled) {
	defer close(g.blocks)
	always := make(chan struct{})
	close(always)
	for {
		goesOn, full := g.decode(ctx)
		var out chan<- *block
		var due <-chan time.Time
		var more <-chan struct{}
		if goesOn {
			more = always
		}
		if !g.block.opened.IsZero() {
			if left := time.Until(g.block.opened.Add(g.cfg.MaxDelay)); left > 0 && !full {
				due = time.After(left)
			} else {
				out = g.blocks
			}
		}
		polls := in
		if g.backlog.bytes > backlogBytes || g.backlog.waiting() >= max(1, g.owned.len()) { // what is new would wait behind what is there
			polls = nil
		}
		select {
		case p := <-polls:
			g.backlog.add(p)
		case <-g.ended: // be it polled or not
			g.handOver(ctx)
			return
		case out <- g.block:
			g.handedOver()
		case <-more:
		case <-due:
		case <-ctx.Done():
			return
		}
	}
}

// decode decodes some of what waits into the block, the partitions in turn. It goes on where that was not all, and says whether the
// block has no room for what waits.
func (g *gatherer) decode(ctx context.Context) (goesOn, full bool) {
	owned := max(1, g.owned.len())
	size := g.size.bytes()
	if g.backlog.deep(size/int64(owned)) >= owned { // nothing of another partition waits for a large block
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

// take decodes the first record of a queue into the block. It is false, and the record waits, where the block has no room for it.
func (g *gatherer) take(ctx context.Context, q *queue) bool {
	r := q.records[0]
	if g.metrics.stops.Has(r.Partition) || g.owned.epoch(r.Partition) != q.epoch {
		g.backlog.drop(q, 1) // behind the record at which the partition stopped, or its next owner reads it
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
	if g.block.full(e.bytes, g.cfg.MaxRecords, g.cfg.MaxBytes) {
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

// entry decodes a record. It becomes no row where it is a fence or cannot be decoded.
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

// handedOver opens a new block. What is read from now on is not done when the writer is done with the last one.
func (g *gatherer) handedOver() {
	g.metrics.lag.Taken(slices.Collect(maps.Keys(g.block.progress))...)
	g.block = newBlock()
	g.backlog.opened()
}

// stop reads nothing more of a partition: what lies before the record is written and committed, and whoever owns the partition
// after an upgrade begins with the record.
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
