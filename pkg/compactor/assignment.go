package compactor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// phase is how far the opening of a partition has come.
type phase int

const (
	// phaseAsking: assigned, or of unknown outcome; what is committed is not known yet.
	phaseAsking phase = iota
	// phaseFencing: C and P are known; a fence goes into the next transaction.
	phaseFencing
	// phaseCatching: the fence is committed; the store reads up to it.
	phaseCatching
	// phaseOpen: events are read.
	phaseOpen
)

// assignment is one assignment of one partition to this session. A partition that comes back gets a
// new one, so that nothing meant for the old can reach it.
type assignment struct {
	id    int32
	since time.Time
	// ctx ends with the assignment; work on its behalf ends with it.
	ctx    context.Context
	cancel context.CancelFunc

	// Guarded by session.mu.
	phase phase
	// asked: this session asks for the committed offset itself, as the assignment's answer is past.
	asked bool
	// known: the client holds the partition as its own; see session.swallowed.
	known    bool
	progress Progress

	// For the actor alone.
	fence int64
	part  *Processor
}

// caught is the end of a catch-up.
type caught struct {
	a    *assignment
	part *Processor
	err  error
}

// refetch asks for the committed offsets of the partitions again, each until it is stable, and says
// nothing of those that are gone meanwhile.
func (s *session) refetch(a *assignment) {
	defer s.work.Done()
	const pause = 100 * time.Millisecond
	for a.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(a.ctx, 5*time.Second)
		// Not FetchOffsetsForTopics: that fails whole if any partition, even another member's, is
		// unstable.
		r, err := s.admin.FetchOffsets(kadm.RequireStable(ctx), s.cfg.Group)
		cancel()
		if err == nil {
			o, ok := r.Lookup(s.topics.Events, a.id)
			if !ok {
				o.At = -1
			}
			if o.Err == nil {
				s.fetched(a, o.At, o.Metadata)
				return
			}
			err = o.Err
		}
		s.logger.Debug("asking for the committed offset again", "partition", a.id, "error", err)
		select {
		case <-time.After(pause):
		case <-a.ctx.Done():
		}
	}
}

// open brings the local store up to the fence and makes the partition. It runs beside the actor and
// answers on s.caught.
func (s *session) open(a *assignment) {
	defer s.work.Done()
	part, err := s.catchUp(a)
	select {
	case s.caught <- caught{a, part, err}:
	case <-a.ctx.Done():
	}
}

func (s *session) catchUp(a *assignment) (*Processor, error) {
	store, err := s.stores.get(a.id)
	if err != nil {
		return nil, err
	}
	// A catch-up for an assignment that is past may still be on its way out.
	store.catching.Lock()
	defer store.catching.Unlock()
	rebuilt, err := store.prepare(s.runsTopicID, s.storeMaxAge, s.now())
	if err != nil {
		return nil, err
	}
	for {
		if rebuilt != "" {
			s.metrics.Rebuilds.WithLabelValues(rebuilt).Inc()
			s.logger.Info("rebuilding local store", "partition", a.id, "reason", rebuilt)
		}
		err := s.readRuns(a, store)
		if !errors.Is(err, kerr.OffsetOutOfRange) || store.meta.NextOffset == 0 {
			if err != nil {
				return nil, err
			}
			break
		}
		rebuilt = rebuildRange
		if err := store.reset(s.runsTopicID, s.now()); err != nil {
			return nil, err
		}
	}
	if err := store.follow(s.eventsID); err != nil {
		return nil, err
	}
	start, err := s.startOffset(a)
	if err != nil {
		return nil, err
	}
	part, report, err := Open(a.id, s.cfg, s.topics, store, s.stores.histories, a.progress, start)
	if err != nil {
		return nil, err
	}
	s.logOpening(a.id, report)
	return part, nil
}

// logOpening says where a partition does not resume at what the group has committed.
func (s *session) logOpening(partition int32, r OpenReport) {
	at := []any{"group", s.cfg.Group, "topic", s.topics.Events, "partition", partition}
	if r.FromRecord {
		s.logger.Error("committed offsets of the group are gone, or were set back: going on from what skein.runs says",
			append(at, "offset", r.Progress.Committed, "decided", r.Progress.Processed)...)
	}
	if r.SetHigher != (OffsetRange{}) {
		s.logger.Error("committed offsets of the group were set higher: what lies between is not read",
			append(at, "offset", r.SetHigher.From, "until", r.SetHigher.Until)...)
	}
	if r.Gone != (OffsetRange{}) {
		s.logger.Error("raw events are gone before they were read", append(at, "offset", r.Gone.From, "until", r.Gone.Until)...)
	}
}

// readRuns reads skein.runs into the store until a record at or above the acknowledged fence.
// Neither the last stable offset nor the high watermark is the right end: transaction markers lag,
// and control records are invisible. A later fence may have compacted ours away: it serves as well.
func (s *session) readRuns(a *assignment, store *localStore) error {
	from := store.meta.NextOffset
	if from > a.fence {
		return nil
	}
	if from == 0 {
		from = kafka.StartOffset
	}
	reader, err := kafka.NewDirectReader(s.kafka, s.topics.Runs, map[int32]int64{a.id: from},
		// Records of runs take some 10 times the room unpacked, of short runs that are much alike 40 times. A
		// larger batch comes alone.
		kgo.FetchMaxPartitionBytes(512<<10), kgo.FetchMaxBytes(1<<20),
		kgo.MaxConcurrentFetches(0)) // nothing is asked for between two turns
	if err != nil {
		return err
	}
	defer reader.Close()
	began := s.now()
	progress := s.catchUps.begin(a.id, store.meta.NextOffset, a.fence+1, began)
	defer func() { progress.done(s.now()) }()
	for done := false; !done; {
		if done, err = s.readPortion(a, store, reader, progress); err != nil {
			return err
		}
	}
	return store.apply(nil, began)
}

const (
	// turnWait is how long a catch-up waits for an answer before it lets others have its turn.
	turnWait = 200 * time.Millisecond
	// applyBytes is how many bytes of records go into one batch of a local store.
	applyBytes = 1 << 20
)

// readPortion takes one answer in, and reports whether the fence was in it.
func (s *session) readPortion(a *assignment, store *localStore, reader *kgo.Client, progress *catchUp) (done bool, err error) {
	give, err := s.stores.turn(a.ctx)
	if err != nil {
		return false, err
	}
	defer give()
	ctx, cancel := context.WithTimeout(a.ctx, turnWait)
	fetches := reader.PollFetches(ctx)
	cancel()
	if err := a.ctx.Err(); err != nil {
		return false, err
	}
	for _, e := range fetches.Errors() {
		if !retriable(e.Err) || errors.Is(e.Err, kerr.UnknownTopicID) { // the topic was made anew: it never passes
			return false, fmt.Errorf("catching up with %s/%d: %w", e.Topic, e.Partition, e.Err)
		}
	}
	var entries []entry
	bytes := 0
	write := func() error {
		if err := store.apply(entries, time.Time{}); err != nil {
			return err
		}
		progress.read(len(entries), bytes, store.meta.NextOffset, s.now())
		clear(entries)
		entries, bytes = entries[:0], 0
		return a.ctx.Err()
	}
	for it := fetches.RecordIter(); !it.Done(); {
		m := it.Next()
		e, err := entryOf(m)
		if err != nil {
			return false, err
		}
		entries = append(entries, e)
		bytes += len(m.Key) + len(m.Value)
		done = done || m.Offset >= a.fence
		if bytes >= applyBytes {
			if err := write(); err != nil {
				return false, err
			}
		}
	}
	if len(entries) == 0 {
		return done, nil
	}
	return done, write()
}

// entryOf reads a record of skein.runs.
func entryOf(m *kgo.Record) (entry, error) {
	if err := kafka.CheckVersion(m); err != nil {
		return entry{}, err
	}
	switch string(m.Key) {
	case record.FenceKey: // it says nothing of a run
		return entry{offset: m.Offset}, nil
	case record.PositionKey:
		reached, err := record.DecodePosition(m.Value)
		if err != nil {
			return entry{}, fmt.Errorf("reading own position record %s/%d@%d: %w", m.Topic, m.Partition, m.Offset, err)
		}
		return entry{offset: m.Offset, reached: &reached}, nil
	}
	h, err := kafka.ParseHeaders(m.Headers)
	e := entry{key: m.Key, value: m.Value, offset: m.Offset, at: m.Timestamp}
	if err == nil && h.Kind == record.KindErase {
		e.erased, err = record.DecodeErased(m.Value)
	}
	if err != nil {
		return entry{}, fmt.Errorf("reading own run record %s/%d@%d: %w", m.Topic, m.Partition, m.Offset, err)
	}
	return e, nil
}

// startOffset asks for the first offset that skein.events still has.
func (s *session) startOffset(a *assignment) (int64, error) {
	ctx, cancel := context.WithTimeout(a.ctx, 10*time.Second)
	defer cancel()
	starts, err := s.admin.ListStartOffsets(ctx, s.topics.Events)
	if err != nil {
		return 0, fmt.Errorf("asking for the start of %s: %w", s.topics.Events, err)
	}
	o, ok := starts.Lookup(s.topics.Events, a.id)
	if o.Err != nil {
		return 0, fmt.Errorf("asking for the start of %s/%d: %w", s.topics.Events, a.id, o.Err)
	}
	if !ok {
		return 0, fmt.Errorf("asking for the start of %s/%d: %w", s.topics.Events, a.id, errNoAnswer)
	}
	return o.Offset, nil
}

var errNoAnswer = errors.New("the broker did not say")

// retriable reports whether a poll's error passes by itself: kgo goes on trying.
func retriable(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || kerr.IsRetriable(err)
}
