package compactor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compactor/partition"
	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// opener opens partitions in the background of the main loop: it fetches the committed offset, brings the local store
// up to the fence and makes the processor.
type opener struct {
	cfg     Config
	kafka   kafka.Config
	topics  kafka.Topics
	logger  *slog.Logger
	metrics *metrics
	now     func() time.Time
	admin   *kadm.Client
	client  *kgo.Client // the session's
	members *membership
	stores  *runstore.Set
	// catchUps reports the progress of stores that are catching up.
	catchUps *catchUps

	runsTopicID string
	eventsID    string // empty if the brokers have no topic ids
	storeMaxAge time.Duration

	opened chan opened
	work   sync.WaitGroup
}

// opened is the result of an opening.
type opened struct {
	a    *assignment
	part *partition.Processor
	err  error
}

// fence returns the record that a partition's owner writes before it reads what was committed. Once the record is
// acknowledged, no transaction of an earlier owner can commit.
func (o *opener) fence(id int32) *kgo.Record {
	return &kgo.Record{
		Topic: o.topics.Runs, Partition: id, Key: []byte(record.FenceKey), Value: []byte(o.cfg.InstanceID),
		Headers: kafka.Headers(record.Headers{Version: record.Version, Kind: record.KindFence, Seq: -1}),
	}
}

// fetch fetches the committed offsets of the assignments in the background until each is known.
func (o *opener) fetch(waiting []*assignment) {
	o.work.Go(func() {
		const shortest, longest = 100 * time.Millisecond, time.Second
		for pause := shortest; ; pause = min(2*pause, longest) {
			waiting = slices.DeleteFunc(waiting, func(a *assignment) bool { return a.ctx.Err() != nil })
			if len(waiting) == 0 {
				return
			}
			if waiting = o.fetchOffsets(waiting); len(waiting) == 0 {
				return
			}
			select {
			case <-time.After(pause):
			case <-waiting[0].ctx.Done(): // usually all of them end together
			}
		}
	})
}

// fetchOffsets requests the group's committed offsets once, and returns the assignments whose offset is still unknown.
func (o *opener) fetchOffsets(waiting []*assignment) (unstable []*assignment) {
	ctx, cancel := context.WithTimeout(waiting[0].ctx, 5*time.Second)
	defer cancel()
	// Not FetchOffsetsForTopics: that fails whole if any partition, even another member's, is unstable.
	r, err := o.admin.FetchOffsets(kadm.RequireStable(ctx), o.kafka.CompactorGroup())
	if err != nil {
		o.logger.Debug("fetching committed offsets again", "error", err)
		return waiting
	}
	for _, a := range waiting {
		committed, ok := r.Lookup(o.topics.Events, a.id)
		if !ok {
			committed.At = -1
		}
		if committed.Err != nil {
			o.logger.Debug("fetching the committed offset again", "partition", a.id, "error", committed.Err)
			unstable = append(unstable, a)
			continue
		}
		o.members.offsetFetched(a, committed.At, committed.Metadata)
	}
	return unstable
}

// open brings the local store up to the fence and makes the processor, in the background. takeOpened takes the result.
func (o *opener) open(a *assignment) {
	o.work.Go(func() {
		part, err := o.catchUp(a)
		select {
		case o.opened <- opened{a, part, err}:
		case <-a.ctx.Done():
		}
	})
}

// takeOpened adds the partitions whose stores have caught up, and resumes their fetching.
func (o *opener) takeOpened() error {
	for {
		select {
		case c := <-o.opened:
			if !o.members.current(c.a) {
				continue
			}
			if errors.Is(c.err, runstore.ErrOtherEvents) {
				return c.err // the same for every partition
			}
			if errors.Is(c.err, record.ErrUnknownVersion) {
				o.members.stop(c.a.id, c.err) // it stays closed
				continue
			}
			if c.err != nil {
				return fmt.Errorf("opening partition %d: %w", c.a.id, c.err)
			}
			c.a.part = c.part
			o.members.advance(c.a, phaseOpen)
			o.metrics.lag.Opened(c.a.id)
			stats := c.part.Stats()
			if !stats.Paused {
				o.readFrom(c.a.id, stats.Next)
			}
			o.metrics.openSeconds.Observe(o.now().Sub(c.a.since).Seconds())
			o.logger.Info("partition open", "partition", c.a.id, "offset", stats.Next, "processed", stats.Processed)
		default:
			return nil
		}
	}
}

// readFrom sets the offset from which the client fetches a partition.
func (o *opener) readFrom(id int32, offset int64) {
	o.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{o.topics.Events: {id: {Epoch: -1, Offset: offset}}})
	o.metrics.stops.Remove(id)
	o.client.ResumeFetchPartitions(map[string][]int32{o.topics.Events: {id}})
}

// catchUp brings the local store up to the fence and makes the processor.
func (o *opener) catchUp(a *assignment) (*partition.Processor, error) {
	store, rebuilt, unlock, err := o.stores.Lock(a.id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	outdated, err := store.Prepare(o.runsTopicID, o.storeMaxAge, o.now())
	if err != nil {
		return nil, err
	}
	rebuilt = cmp.Or(rebuilt, outdated)
	for {
		if rebuilt != "" {
			o.metrics.rebuilds.WithLabelValues(rebuilt).Inc()
			o.logger.Info("rebuilding local store", "partition", a.id, "reason", rebuilt)
		}
		err := o.readRuns(a, store)
		if !errors.Is(err, kerr.OffsetOutOfRange) || store.Followed().NextOffset == 0 {
			if err != nil {
				return nil, err
			}
			break
		}
		rebuilt = runstore.RebuildRange
		if err := store.Reset(o.runsTopicID, o.now()); err != nil {
			return nil, err
		}
	}
	if err := store.BindEvents(o.eventsID); err != nil {
		return nil, err
	}
	start, err := o.startOffset(a)
	if err != nil {
		return nil, err
	}
	part, report, err := partition.Open(a.id, o.cfg.Config, o.topics, store, a.progress, start)
	if err != nil {
		return nil, err
	}
	o.logReport(a.id, report)
	return part, nil
}

// logReport logs if a partition does not resume at the committed offset.
func (o *opener) logReport(id int32, r partition.OpenReport) {
	at := []any{"group", o.kafka.CompactorGroup(), "topic", o.topics.Events, "partition", id}
	if r.FromRecord {
		o.logger.Error("committed offsets of the group are gone, or were set back: going on from what skein.runs says",
			append(at, "offset", r.Progress.Committed, "processed", r.Progress.Processed)...)
	}
	if r.SetHigher != (partition.OffsetRange{}) {
		o.logger.Error("committed offsets of the group were set higher: what lies between is not read",
			append(at, "offset", r.SetHigher.From, "until", r.SetHigher.Until)...)
	}
	if r.Gone != (partition.OffsetRange{}) {
		o.logger.Error("raw events are gone before they were read", append(at, "offset", r.Gone.From, "until", r.Gone.Until)...)
	}
}

// startOffset returns the first offset that skein.events still has.
func (o *opener) startOffset(a *assignment) (int64, error) {
	ctx, cancel := context.WithTimeout(a.ctx, 10*time.Second)
	defer cancel()
	starts, err := o.admin.ListStartOffsets(ctx, o.topics.Events)
	if err != nil {
		return 0, fmt.Errorf("asking for the start of %s: %w", o.topics.Events, err)
	}
	first, ok := starts.Lookup(o.topics.Events, a.id)
	if first.Err != nil {
		return 0, fmt.Errorf("asking for the start of %s/%d: %w", o.topics.Events, a.id, first.Err)
	}
	if !ok {
		return 0, fmt.Errorf("asking for the start of %s/%d: %w", o.topics.Events, a.id, errNoAnswer)
	}
	return first.Offset, nil
}

var errNoAnswer = errors.New("the broker did not say")

// retriable reports whether kgo retries after this error of a poll.
func retriable(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || kerr.IsRetriable(err)
}
