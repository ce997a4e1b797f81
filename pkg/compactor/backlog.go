package compactor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/skeinhq/skein/pkg/compactor/partition"
	"github.com/skeinhq/skein/pkg/kafka"
)

const (
	// foldRecords is how many records of a partition are folded before the main loop looks at the clock and at what is
	// still ours.
	foldRecords = 5_000
	// pollRecords is how many records are taken at once of what brokers have answered. One answer is some 25,000 where
	// texts are short. A broker is asked again once its answer is taken whole, so that the next one is fetched and
	// unpacked while this one is folded; the bound is for many brokers, as what is taken is held beside it.
	pollRecords = 50_000
)

// backlog is what was polled and is not processed yet. Nothing more is polled before all of it is.
type backlog struct {
	group     *kgo.GroupTransactSession
	logger    *slog.Logger
	lag       *kafka.Lag
	stretches []*stretch
	lastError string // of a poll, that was logged
}

// stretch is what was polled of a partition, and the assignment under which it was open. Once that ends, or is replaced
// by another, nobody processes what is left: the next owner reads from what is committed.
type stretch struct {
	of      *assignment
	records []*kgo.Record
	stop    partition.Stop // why the processor took no more
}

// fetch polls where nothing is left, and keeps what comes for open partitions. What leaks through of a paused one is
// fetched again once it opens.
func (b *backlog) fetch(ctx context.Context, members *membership) error {
	if len(b.stretches) > 0 {
		return nil
	}
	fetches, err := b.poll(ctx)
	if err != nil {
		return err
	}
	open := members.open()
	fetches.EachPartition(func(f kgo.FetchTopicPartition) {
		a := open[f.Partition]
		if a == nil || a.part.Stats().Paused || members.metrics.Stops.Has(f.Partition) {
			return
		}
		if records := b.readable(f.Records, members); len(records) > 0 {
			b.add(a, records)
		}
	})
	return nil
}

// readable returns the records of one partition before the first one that a newer Skein wrote. The partition stops there:
// what was read is committed, and whoever owns the partition after an upgrade reads on from what is committed.
func (b *backlog) readable(records []*kgo.Record, members *membership) []*kgo.Record {
	for i, m := range records {
		if err := kafka.CheckVersion(m); err != nil {
			b.group.Client().PauseFetchPartitions(map[string][]int32{m.Topic: {m.Partition}})
			members.stop(m.Partition, err)
			return records[:i]
		}
	}
	return records
}

// poll takes some of what the client holds, and waits where that is nothing.
func (b *backlog) poll(ctx context.Context) (kgo.Fetches, error) {
	failed := false
	fetches := b.group.PollRecords(ctx, pollRecords)
	for _, e := range fetches.Errors() {
		if errors.Is(e.Err, kafka.ErrUnpackLater) {
			continue
		}
		if isFenced(e.Err) {
			return nil, fmt.Errorf("%w: %w", ErrFenced, e.Err)
		}
		// UNKNOWN_MEMBER_ID and its like: kgo rejoins by itself.
		// UNKNOWN_TOPIC_ID: the topic was created again; the client stays with the one that is gone.
		if errors.Is(e.Err, kerr.OffsetOutOfRange) || errors.Is(e.Err, kerr.UnknownTopicID) || errors.Is(e.Err, kgo.ErrClientClosed) {
			return nil, fmt.Errorf("polling %s/%d: %w", e.Topic, e.Partition, e.Err)
		}
		if !errors.Is(e.Err, context.DeadlineExceeded) && !errors.Is(e.Err, context.Canceled) {
			if b.lastError != e.Err.Error() {
				b.lastError = e.Err.Error()
				b.logger.Warn("polling reported an error", "topic", e.Topic, "partition", e.Partition, "error", e.Err)
			}
			failed = true
		}
	}
	if failed && fetches.NumRecords() == 0 {
		// The client may have the same answer at once again, such as where the topic is gone.
		<-ctx.Done()
	}
	return fetches, nil
}

func (b *backlog) add(a *assignment, records []*kgo.Record) {
	b.noteLag(a.id, records)
	for _, s := range b.stretches {
		if s.of == a { // of another broker
			s.records = append(slices.Clip(s.records), records...)
			return
		}
	}
	b.stretches = append(b.stretches, &stretch{of: a, records: records})
}

// noteLagAgain tells the lag of what is left: the last commit has said that all that was read is done.
func (b *backlog) noteLagAgain() {
	for _, s := range b.stretches {
		b.noteLag(s.of.id, s.records)
	}
}

// noteLag tells the lag of what was polled. Nobody waits for markers of transactions.
func (b *backlog) noteLag(id int32, records []*kgo.Record) {
	var oldest, newest time.Time
	for _, m := range records {
		if m.Attrs.IsControl() {
			continue
		}
		if oldest.IsZero() || m.Timestamp.Before(oldest) {
			oldest = m.Timestamp
		}
		if m.Timestamp.After(newest) {
			newest = m.Timestamp
		}
	}
	if oldest.IsZero() {
		return
	}
	b.lag.Read(id, oldest)
	b.lag.Read(id, newest)
}

// dropLost drops what belongs to an assignment that does not hold any more.
func (b *backlog) dropLost(own owned) {
	b.stretches = slices.DeleteFunc(b.stretches, func(s *stretch) bool { return own.parts[s.of.id].assignment != s.of })
}

// refoldNext returns the stretch whose next record may be a request to refold a thread; nil if there is none.
func (b *backlog) refoldNext() *stretch {
	for _, s := range b.stretches {
		if s.stop == partition.StopRefold {
			return s
		}
	}
	return nil
}

// process folds some of the backlog into the room, each partition beside the others.
func (b *backlog) process(room *partition.Room, now time.Time) error {
	var folding errgroup.Group
	folding.SetLimit(runtime.GOMAXPROCS(0))
	for _, s := range b.stretches {
		folding.Go(func() error {
			taken, stop, err := s.of.part.Process(s.records[:min(foldRecords, len(s.records))], now, room)
			s.stop = stop
			s.take(taken)
			return err
		})
	}
	err := folding.Wait()
	b.stretches = slices.DeleteFunc(b.stretches, func(s *stretch) bool { return len(s.records) == 0 })
	return err
}

// take drops the first records: the processor has what it needs of them, and the client uses their memory again.
func (s *stretch) take(n int) {
	for _, m := range s.records[:n] {
		m.Recycle()
	}
	s.records = s.records[n:]
}
