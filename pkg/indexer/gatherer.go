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
// memory: once it is full, the gatherer waits for the writer, and with it the poller.
type gatherer struct {
	*Service
	client *kgo.Client
	block  *block
	blocks chan<- *block
}

// run decodes what is polled until in is closed, hands the last block over and closes the channel of blocks. After ctx
// has ended nobody takes blocks any more.
func (g *gatherer) run(ctx context.Context, in <-chan polled) {
	defer close(g.blocks)
	for {
		var out chan<- *block
		var due <-chan time.Time
		if !g.block.opened.IsZero() {
			if left := time.Until(g.block.opened.Add(g.cfg.MaxDelay)); left > 0 {
				due = time.After(left)
			} else {
				out = g.blocks
			}
		}
		select {
		case p, ok := <-in:
			if !ok {
				g.handOver(ctx)
				return
			}
			for it := p.records.RecordIter(); !it.Done(); {
				r := it.Next()
				g.take(ctx, r, p.epochs[r.Partition])
				r.Recycle() // an entry shares nothing with it
			}
		case out <- g.block:
			g.handedOver()
		case <-due:
		case <-ctx.Done():
			return
		}
	}
}

// take decodes a record into the block, and hands the block over before that where it is full without it.
func (g *gatherer) take(ctx context.Context, r *kgo.Record, epoch int64) {
	if g.metrics.stops.Has(r.Partition) || g.owned.epoch(r.Partition) != epoch {
		return // behind the record at which the partition stopped, or its next owner reads it
	}
	if err := kafka.CheckVersion(r); err != nil {
		g.stop(ctx, r, epoch, err)
		return
	}
	e, what, err := decode(r)
	g.metrics.records.WithLabelValues(string(what)).Inc()
	size := sizeOf(e, r)
	if g.block.full(size, g.cfg.MaxRecords, g.cfg.MaxBytes) {
		g.handOver(ctx)
	}
	g.metrics.lag.Read(r.Partition, r.Timestamp)
	g.block.read(r, epoch, time.Now())
	switch {
	case err != nil:
		g.cfg.Logger.WarnContext(ctx, "record skipped", "topic", r.Topic, "partition", r.Partition, "offset", r.Offset, "error", err)
	case what != outcomeFence:
		g.block.add(entry{Entry: e, bytes: size, epoch: epoch, timestamp: r.Timestamp})
	}
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
