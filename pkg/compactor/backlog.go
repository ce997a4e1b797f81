package compactor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
	// foldTime is how long all partitions together fold before the main loop checks the clock, its assignments and new
	// records. One record is always folded whole.
	foldTime = 50 * time.Millisecond
	// foldRecords and foldBytes limit what one partition folds between two checks of the clock.
	foldRecords = 8
	foldBytes   = 16 << 10
	// pollRecords is the most records that one poll takes from the brokers' answers. One answer has some 25,000 if texts
	// are short. The client asks a broker again once its whole answer is taken, and so fetches and unpacks the next answer
	// while this one is folded. The limit is for many brokers, as taken records stay in memory, too.
	pollRecords = 50_000
	// holdBytes limits the unprocessed records of all partitions together while the main loop polls. A partition that
	// holds more than an equal part of these bytes is not fetched.
	holdBytes = 4 << 20
)

// backlog holds the records that were polled and are not processed yet. Usually all of them are processed before the
// next poll. If that takes longer than foldTime, the main loop polls in between, so no partition waits for a slow one.
type backlog struct {
	group     *kgo.GroupTransactSession
	logger    *slog.Logger
	lag       *kafka.Lag
	now       func() time.Time
	stretches []*stretch // those that have waited longest come first
	turn      int        // number of calls of process
	// refused maps each partition for which an answer had no room (kafka.ErrUnpackLater) to the time of the last such answer.
	refused   map[int32]time.Time
	lastError string // the last error of a poll that was logged
}

// stretch holds the polled records of a partition, and the assignment under which they were polled. When the assignment
// ends, the remaining records are discarded, as the next owner reads from the committed offset.
type stretch struct {
	of      *assignment
	records []*kgo.Record
	bytes   int            // estimated size in memory
	paused  bool           // true while the partition is not fetched
	turn    int            // backlog.turn when its records were last processed
	stop    partition.Stop // why the processor took no more
}

// fetch polls and keeps the records of open partitions. It waits for records only if the backlog is empty, or if an
// answer had no room for a partition without records in the backlog. It discards records of a paused partition; the
// client fetches them again once the partition opens.
func (b *backlog) fetch(ctx context.Context, members *membership) error {
	briefly, cancel := context.WithTimeout(ctx, foldTime)
	defer cancel()
	for {
		open := members.open()
		until := ctx
		if starving := b.pause(open, members); starving {
			until = briefly
		} else if len(b.stretches) > 0 {
			until = nil // do not wait
		}
		fetches, err := b.poll(until)
		if err != nil {
			return err
		}
		fetches.EachPartition(func(f kgo.FetchTopicPartition) {
			a := open[f.Partition]
			if a == nil || a.part.Stats().Paused || members.metrics.stops.Has(f.Partition) {
				return
			}
			if errors.Is(f.Err, kafka.ErrUnpackLater) {
				b.refused[f.Partition] = b.now()
			}
			if len(f.Records) > 0 {
				delete(b.refused, f.Partition)
				b.add(a, f.Records)
			}
		})
		if !b.isStarving(open) || briefly.Err() != nil {
			return nil
		}
	}
}

// pause pauses the fetching of partitions with many unprocessed bytes, and resumes the others. If records of other partitions fill the
// answers and a partition has none left here (starving), pause pauses all partitions that have records left.
func (b *backlog) pause(open map[int32]*assignment, members *membership) (starving bool) {
	starving = b.isStarving(open)
	for _, s := range b.stretches {
		if open[s.of.id] != s.of { // the pause belongs to another assignment
			continue
		}
		paused := starving && len(s.records) > 0 || s.bytes > holdBytes/len(b.stretches)
		if paused == s.paused || members.metrics.stops.Has(s.of.id) { // a stopped partition stays paused
			continue
		}
		s.paused = paused
		of := map[string][]int32{members.topic: {s.of.id}}
		if paused {
			b.group.Client().PauseFetchPartitions(of)
		} else {
			b.group.Client().ResumeFetchPartitions(of)
		}
	}
	return starving
}

// isStarving reports whether, within the last second, an answer had no room for an open partition without records in the backlog.
func (b *backlog) isStarving(open map[int32]*assignment) bool {
	maps.DeleteFunc(b.refused, func(_ int32, at time.Time) bool { return b.now().Sub(at) > time.Second })
	for id := range b.refused {
		if open[id] != nil && !slices.ContainsFunc(b.stretches, func(s *stretch) bool { return s.of.id == id && len(s.records) > 0 }) {
			return true
		}
	}
	return false
}

// poll takes some of the records that the client holds. If there are none it waits, unless ctx is nil.
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
		// After UNKNOWN_MEMBER_ID and similar errors, kgo rejoins by itself. After UNKNOWN_TOPIC_ID it does not recover: the
		// topic was recreated, and the client keeps using the deleted one.
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
	if failed && ctx != nil && fetches.NumRecords() == 0 {
		// The client may return the same error again at once, for example if the topic is gone.
		<-ctx.Done()
	}
	return fetches, nil
}

// any reports whether records wait to be processed.
func (b *backlog) any() bool {
	return slices.ContainsFunc(b.stretches, func(s *stretch) bool { return len(s.records) > 0 })
}

func (b *backlog) add(a *assignment, records []*kgo.Record) {
	b.noteLag(a.id, records)
	at := slices.IndexFunc(b.stretches, func(s *stretch) bool { return s.of == a })
	if at < 0 {
		at = len(b.stretches)
		b.stretches = append(b.stretches, &stretch{of: a, turn: b.turn})
	}
	b.stretches[at].add(records)
}

// noteLagAgain sets the lag again from the records that are not processed yet, as a commit resets it to zero.
func (b *backlog) noteLagAgain() {
	for _, s := range b.stretches {
		b.noteLag(s.of.id, s.records)
	}
}

// noteLag sets a partition's lag from polled records. Transaction markers do not count.
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

// dropLost drops the records of assignments that have ended.
func (b *backlog) dropLost(own owned) {
	b.stretches = slices.DeleteFunc(b.stretches, func(s *stretch) bool { return own.parts[s.of.id].assignment != s.of })
}

// process folds records of the backlog for about foldTime or until room is full, partitions in parallel.
func (b *backlog) process(room *partition.Room, members *membership) error {
	b.turn++
	workers := runtime.GOMAXPROCS(0)
	each := foldTime * time.Duration(workers) / time.Duration(max(workers, len(b.stretches)))
	var folding errgroup.Group
	folding.SetLimit(workers)
	for _, s := range b.stretches {
		folding.Go(func() error { return s.process(room, b.now, each, b.turn) })
	}
	err := folding.Wait()
	for _, s := range b.stretches {
		if s.stop == partition.StopVersion {
			b.stop(s, members)
		}
	}
	b.stretches = slices.DeleteFunc(b.stretches, func(s *stretch) bool { return len(s.records) == 0 && !s.paused })
	// Partitions that found the room full come first next time.
	slices.SortStableFunc(b.stretches, func(x, y *stretch) int { return cmp.Compare(x.turn, y.turn) })
	return err
}

// stop ends the reading of a partition before a record that a newer Skein wrote. Earlier records are committed, and the
// partition's owner after an upgrade continues from there.
func (b *backlog) stop(s *stretch, members *membership) {
	b.group.Client().PauseFetchPartitions(map[string][]int32{members.topic: {s.of.id}})
	members.stop(s.of.id, kafka.CheckVersion(s.records[0]))
	s.take(len(s.records))
	s.stop, s.paused = partition.StopEnd, false // so that nothing keeps the empty stretch
}

// process folds records in portions until the duration most has passed. It always starts the first portion.
func (s *stretch) process(room *partition.Room, clock func() time.Time, most time.Duration, turn int) error {
	began := clock()
	for now := began; len(s.records) > 0; {
		n := s.portion()
		taken, stop, err := s.of.part.Process(s.records[:n], now, room)
		s.stop = stop
		s.take(taken)
		if taken > 0 {
			s.turn = turn
		}
		if now = clock(); err != nil || taken < n || now.Sub(began) >= most {
			return err
		}
	}
	return nil
}

// portion returns how many records to fold before the next check of the clock.
func (s *stretch) portion() (n int) {
	for bytes := 0; n < min(foldRecords, len(s.records)) && bytes < foldBytes; n++ {
		bytes += len(s.records[n].Value)
	}
	return n
}

func (s *stretch) add(records []*kgo.Record) {
	if len(s.records) == 0 {
		s.records = records
	} else { // from another broker, or in addition to what is left
		s.records = append(slices.Clip(s.records), records...)
	}
	for _, m := range records {
		s.bytes += memoryOf(m)
	}
}

// memoryOf estimates a record's size in memory before it is folded.
func memoryOf(m *kgo.Record) int {
	const overhead = 512 // of the record and its headers
	n := overhead + len(m.Key) + len(m.Value)
	for _, h := range m.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// take drops the first n records and returns their memory to the client. The processor has copied what it needs.
func (s *stretch) take(n int) {
	for _, m := range s.records[:n] {
		s.bytes -= memoryOf(m)
		m.Recycle()
	}
	s.records = s.records[n:]
}
