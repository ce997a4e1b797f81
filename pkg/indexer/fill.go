package indexer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/store"
)

// Filled has the counts of Fill.
type Filled struct {
	// Records are the records of skein.runs that were read, Entries those that were written: of several records of one run in one block
	// only the newest is written.
	Records, Entries int64
	// Undecodable records and Refused runs are skipped, as by the indexer, which has written dead letters for the latter.
	Undecodable, Refused int64
}

// Add adds the counts of another call.
func (f *Filled) Add(o Filled) {
	f.Records, f.Entries = f.Records+o.Records, f.Entries+o.Entries
	f.Undecodable, f.Refused = f.Undecodable+o.Undecodable, f.Refused+o.Refused
}

// fillTries bounds how often Fill tries to write one block: some five minutes with the default backoff.
const fillTries = 40

// Fill writes the records of skein.runs in these spans to a store, without a consumer group. It calls report with the number of offsets
// that were read. A record of a newer Skein is an error. After an error, start with an empty store: Fill stores no progress.
func Fill(ctx context.Context, cfg Config, w store.Writer, spans map[int32]kafka.Span, report func(read, total int64)) (Filled, error) {
	f := filler{cfg: cfg, store: w, report: report, at: map[int32]int64{}}
	for p, s := range spans {
		if !s.Empty() {
			f.at[p] = s.Start
			f.total += s.End - s.Start
		}
	}
	blocks := make(chan *block)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(blocks)
		return f.read(ctx, spans, blocks)
	})
	g.Go(func() error {
		for b := range blocks {
			if err := f.write(ctx, b); err != nil {
				return err
			}
		}
		return nil
	})
	err := g.Wait()
	return f.filled, err
}

// filler is the state of a Fill. The writing goroutine changes filled.Refused and filled.Entries, the reading one all else.
type filler struct {
	cfg    Config
	store  store.Writer
	report func(read, total int64)
	at     map[int32]int64 // next offset to read of each partition
	done   int64           // offsets read
	total  int64           // offsets in all
	filled Filled
}

// read decodes records into blocks.
func (f *filler) read(ctx context.Context, spans map[int32]kafka.Span, out chan<- *block) error {
	b := newBlock()
	handOver := func() error {
		select {
		case out <- b:
			b = newBlock()
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for r, err := range kafka.Scan(ctx, f.cfg.Kafka, f.cfg.Kafka.Topics().Runs, spans) {
		if err != nil {
			return fmt.Errorf("reading %s: %w", f.cfg.Kafka.Topics().Runs, err)
		}
		f.filled.Records++
		f.done += r.Offset + 1 - f.at[r.Partition] // compaction leaves gaps
		f.at[r.Partition] = r.Offset + 1
		e, what, err := decode(r)
		if err != nil {
			f.filled.Undecodable++
			f.cfg.Logger.WarnContext(ctx, "record skipped", "topic", r.Topic, "partition", r.Partition, "offset", r.Offset, "error", err)
			continue
		}
		if what == outcomeFence {
			continue
		}
		size := sizeOf(e, r)
		if b.full(size, f.cfg.maxRecords, f.cfg.MaxBytes) {
			if err := handOver(); err != nil {
				return err
			}
			f.report(f.done, f.total)
		}
		b.add(entry{Entry: e, bytes: size, timestamp: r.Timestamp})
	}
	return handOver()
}

// write writes a block, and retries while the store is away.
func (f *filler) write(ctx context.Context, b *block) error {
	entries := b.ordered()
	if len(entries) == 0 {
		return nil
	}
	for try := 0; ; try++ {
		s := bisector{store: f.store, busy: new(atomic.Int64)}
		err := s.write(ctx, entries)
		switch {
		case err == nil:
			f.filled.Refused += int64(len(s.refused))
			f.filled.Entries += int64(len(entries) - len(s.refused))
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errRefusesAll), errors.Is(err, store.ErrSchema), try == fillTries:
			return fmt.Errorf("writing block: %w", err)
		}
		f.cfg.Logger.WarnContext(ctx, "writing to the store failed; trying again", "error", err)
		f.cfg.wait(ctx, try)
	}
}
