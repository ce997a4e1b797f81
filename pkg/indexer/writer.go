package indexer

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// writer writes blocks, one after the other, and commits the offsets of each once it is durable.
type writer struct {
	*Service
	client *kgo.Client
	logged logged
	// durable has the offsets that may be committed and are not yet: a failed commit is retried.
	durable     map[int32]progress
	deadLetters *kgo.Client // nil before the first dead letter
	takenAt     time.Time   // when the store last took a run; zero if it has not yet
}

// run writes blocks until the channel is closed. It retries a block until ctx ends; an error means that a block is not durable.
func (w *writer) run(ctx context.Context, blocks <-chan *block) error {
	defer func() {
		if w.deadLetters != nil {
			w.deadLetters.Close()
		}
	}()
	for {
		var again <-chan time.Time
		if len(w.durable) > 0 {
			again = time.After(w.cfg.MaxDelay)
		}
		w.busy.Store(0)
		select {
		case b, ok := <-blocks:
			if !ok {
				w.commit(ctx)
				return nil
			}
			if err := w.write(ctx, b); err != nil {
				return err
			}
		case <-again:
			w.commit(ctx)
		}
	}
}

// write writes a block and commits. Between two tries partitions may be revoked.
func (w *writer) write(ctx context.Context, b *block) error {
	for try := 0; ; try++ {
		w.busy.Store(time.Now().UnixNano())
		err := w.writeOnce(ctx, b)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return err
		}
		w.metrics.writeErrors.Inc()
		w.setFault(err)
		w.cfg.Logger.Log(ctx, w.logged.level(err), "writing to the store failed; trying again", "error", err)
		w.cfg.wait(ctx, try)
	}
	w.setFault(nil)
	clear(w.logged)
	return nil
}

// writeTimeout bounds one call of the store, which may be many statements. It is less than the 5 minutes after which liveness fails
// (Turned).
const writeTimeout = 4 * time.Minute

// writeOnce writes the entries of partitions that are still assigned, and commits. After an error some entries may be durable; writing
// them again changes nothing.
func (w *writer) writeOnce(ctx context.Context, b *block) error {
	w.owned.writing <- struct{}{}
	defer func() { <-w.owned.writing }()
	b = w.owned.current(b)
	if entries := b.ordered(); len(entries) > 0 {
		start := time.Now()
		s := bisector{store: w.store, busy: &w.busy, fault: w.setFault, worked: !w.takenAt.IsZero() && start.Sub(w.takenAt) < trust}
		err := s.write(ctx, entries)
		if s.taken > 0 {
			w.takenAt = start
		}
		if err != nil {
			return fmt.Errorf("writing block: %w", err)
		}
		if err := w.writeDeadLetters(ctx, s.refused); err != nil {
			return fmt.Errorf("writing block: %w", err)
		}
		took := time.Since(start)
		w.size.wrote(b.bytes, took)
		w.metrics.writeDuration.Observe(took.Seconds())
		w.metrics.blockRecords.Observe(float64(len(entries)))
		w.metrics.blockBytes.Observe(float64(b.bytes))
		w.trace(start, entries)
	}
	for _, e := range b.entries {
		w.metrics.age.Observe(max(time.Since(e.timestamp).Seconds(), 0))
	}
	for p := range b.progress {
		w.metrics.lag.Done(p)
	}
	maps.Copy(w.durable, b.progress)
	w.commit(ctx)
	return nil
}

// trace makes the span of a block, which links to the runs in it that have ended.
func (w *writer) trace(began time.Time, entries []store.Entry) {
	if w.cfg.Tracer == nil {
		return
	}
	var runs []*record.Run
	for _, e := range entries {
		if e.Run != nil && e.Run.Status != record.StatusRunning {
			runs = append(runs, e.Run)
		}
	}
	w.cfg.Tracer.Block(began, runs)
}

// commit commits the offsets after the durable records. If it fails, the next call retries.
func (w *writer) commit(ctx context.Context) {
	topic := w.cfg.Kafka.Topics().Runs
	err := w.owned.whileCurrent(w.durable, func(ours map[int32]progress) error {
		last := make([]*kgo.Record, 0, len(ours))
		for p, at := range ours {
			last = append(last, &kgo.Record{Topic: topic, Partition: p, Offset: at.next - 1, LeaderEpoch: at.leaderEpoch})
		}
		return w.client.CommitRecords(ctx, last...)
	})
	switch {
	case err == nil:
		clear(w.durable)
	case ctx.Err() == nil:
		w.metrics.commitErrors.Inc()
		w.cfg.Logger.Log(ctx, w.logged.level(err), "committing offsets failed; trying again with the next block", "topic", topic, "error", err)
	}
}
