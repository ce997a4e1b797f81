package indexer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/store"
)

// Service is the indexer. One goroutine polls, writes and commits.
type Service struct {
	cfg     Config
	store   store.Writer
	metrics *metrics
	owned   *assignment

	mu    sync.Mutex
	fault error // why the last block could not be written; nil: it could

	// busy is since when the work has been at its present turn, in nanoseconds; 0 while it waits for records.
	busy atomic.Int64
	// said are the errors that were logged since something was read, or written: each try ends like the one
	// before.
	said map[string]bool
}

// New checks the configuration and registers the metrics. Nothing is opened before Run.
func New(cfg Config, w store.Writer) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("registering indexer metrics: %w", err)
	}
	return &Service{cfg: cfg, store: w, metrics: m, owned: newAssignment(m.partitions, m.lag, m.stops), said: make(map[string]bool)}, nil
}

// Ready returns nil while the group has given this member its partitions (which may be none) and the
// store has taken the last block; else what is missing.
func (s *Service) Ready() error {
	s.mu.Lock()
	fault := s.fault
	s.mu.Unlock()
	switch {
	case fault != nil:
		return fault
	case !s.owned.isJoined():
		return errors.New("the group has not given out its partitions")
	}
	return nil
}

// CheckVersions returns nil, or why a partition has stopped: a newer Skein wrote its next record.
func (s *Service) CheckVersions() error { return s.metrics.stops.Check() }

// Lag is the member's lag, for who finds out from outside what the member cannot see.
func (s *Service) Lag() *kafka.Lag { return s.metrics.lag }

// stands notes how the store stands, for Ready.
func (s *Service) stands(fault error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Run indexes until ctx ends; then it writes what it has read, commits, leaves the group and returns
// nil. The topics and the store's schema must be there. While the store or Kafka is away it waits and
// tries again. An error is one that waiting does not mend. Run is called once.
func (s *Service) Run(ctx context.Context) error {
	if err := s.follow(ctx); err != nil {
		return err
	}
	cl, err := kafka.NewGroupReader(s.cfg.Kafka, kafka.GroupOptions{
		Group:  s.cfg.Group,
		Topics: []string{s.cfg.Kafka.Topics().Runs},
		OnAssigned: func(ctx context.Context, cl *kgo.Client, topics map[string][]int32) {
			s.owned.assigned(ctx, cl, topics)
			cl.ResumeFetchPartitions(topics) // stop may have paused them when they were last ours
		},
		OnRevoked: s.owned.revoked,
		OnLost:    s.owned.lost,
	})
	if err != nil {
		return fmt.Errorf("starting indexer: %w", err)
	}
	defer cl.CloseAllowingRebalance()
	b := newBlock()
	for ctx.Err() == nil {
		if err := s.poll(ctx, cl, b); err != nil {
			return err
		}
		if s.due(b) {
			// An error is that ctx has ended: the block is written below.
			_ = s.flush(ctx, cl, b)
		}
		cl.AllowRebalance()
	}
	return s.drain(ctx, cl, b)
}

// follow returns once the store's rows are known to be of the topic that is there now, or ctx has ended. A topic that
// is made again while an indexer reads it is seen by the client; in between, only by its id: the group has no
// offsets of it, and the old rows would win over those of its records, whose offsets are less.
func (s *Service) follow(ctx context.Context) error {
	adm, err := kafka.NewAdmin(s.cfg.Kafka)
	if err != nil {
		return fmt.Errorf("starting indexer: %w", err)
	}
	defer adm.Close()
	for try := 0; ctx.Err() == nil; try++ {
		err := s.followOnce(ctx, adm)
		switch {
		case errors.Is(err, store.ErrOtherTopic):
			return fmt.Errorf("reading %s: %w; empty the store and reset group %s to build the index anew", s.cfg.Kafka.Topics().Runs, err, s.cfg.Group)
		case err == nil:
			s.stands(nil)
			clear(s.said)
			return nil
		case ctx.Err() == nil:
			s.stands(err)
			s.cfg.Logger.Log(ctx, s.level(err), "asking what to index failed; trying again", "error", err)
			s.wait(ctx, try)
		}
	}
	return nil
}

func (s *Service) followOnce(ctx context.Context, adm *kadm.Client) error {
	asking, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	set, err := kafka.ReadTopicSet(asking, adm, s.cfg.Kafka.Topics())
	id := set.IDs[1]
	if err != nil || id == (kadm.TopicID{}) { // brokers before 2.8 know no ids
		return err
	}
	return s.store.Follow(ctx, id.String())
}

// poll reads into the block until something comes or the block is due.
func (s *Service) poll(ctx context.Context, cl *kgo.Client, b *block) error {
	wait, cancel := ctx, func() {}
	if !b.opened.IsZero() {
		wait, cancel = context.WithDeadline(ctx, b.opened.Add(s.cfg.MaxDelay))
	}
	s.busy.Store(0)
	fetches := cl.PollRecords(wait, max(s.cfg.MaxRecords-len(b.entries), 1))
	s.busy.Store(time.Now().UnixNano())
	cancel()
	if fetches.NumRecords() > 0 {
		clear(s.said)
	}
	for _, f := range fetches.Errors() {
		if errors.Is(f.Err, context.Canceled) || errors.Is(f.Err, context.DeadlineExceeded) {
			continue // ours
		}
		if errors.Is(f.Err, kafka.ErrUnpackLater) {
			continue
		}
		s.metrics.fetchErrors.Inc()
		if errors.Is(f.Err, kerr.OffsetOutOfRange) || errors.Is(f.Err, kerr.UnknownTopicID) {
			// The topic was made anew or cut: what the store has belongs to another one.
			return fmt.Errorf("reading %s partition %d: the group's offset is not in the log; empty the store and reset group %s to build the index anew: %w",
				f.Topic, f.Partition, s.cfg.Group, f.Err)
		}
		s.cfg.Logger.Log(ctx, s.level(f.Err), "reading failed; trying again", "topic", f.Topic, "partition", f.Partition, "error", f.Err)
		s.wait(ctx, 0)
	}
	fetches.EachRecord(func(r *kgo.Record) { s.take(ctx, cl, b, r) })
	return nil
}

// take decodes a record into the block. Rebalances are held up since the poll, so the partition's
// epoch is the one under which the record was fetched.
func (s *Service) take(ctx context.Context, cl *kgo.Client, b *block, r *kgo.Record) {
	if s.metrics.stops.Has(r.Partition) { // fetched together with the record at which it stopped
		return
	}
	if err := kafka.CheckVersion(r); err != nil {
		s.stop(ctx, cl, r, err)
		return
	}
	epoch := s.owned.epoch(r.Partition)
	s.metrics.lag.Read(r.Partition, r.Timestamp)
	b.read(r, epoch, time.Now())
	e, what, err := decode(r)
	s.metrics.records.WithLabelValues(string(what)).Inc()
	switch {
	case err != nil:
		s.cfg.Logger.WarnContext(ctx, "record skipped", "topic", r.Topic, "partition", r.Partition, "offset", r.Offset, "error", err)
	case what == outcomeRun || what == outcomeTombstone || what == outcomeErasure || what == outcomeProgress:
		b.add(e, r, epoch)
	}
}

// stop reads nothing more of a partition: what lies before the record is written and committed, and whoever owns the partition
// after an upgrade begins with the record.
func (s *Service) stop(ctx context.Context, cl *kgo.Client, r *kgo.Record, err error) {
	cl.PauseFetchPartitions(map[string][]int32{r.Topic: {r.Partition}})
	s.metrics.records.WithLabelValues(string(outcomeUnknownVersion)).Inc()
	s.metrics.stops.Add(r.Partition, err)
	s.cfg.Logger.ErrorContext(ctx, "partition stopped: a newer version wrote its next record; update this process",
		"topic", r.Topic, "partition", r.Partition, "offset", r.Offset, "error", err)
}

// level is that of the log for an error that is tried again: a warning once.
func (s *Service) level(err error) slog.Level {
	if said := err.Error(); !s.said[said] {
		s.said[said] = true
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// Turned is when Run has last come round: read, or tried to write. It is now where Run waits for records.
// While the store or Kafka does not answer one turn may take 4 minutes; else seconds.
func (s *Service) Turned() time.Time {
	if at := s.busy.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Now()
}

// due reports whether a block must be written now.
func (s *Service) due(b *block) bool {
	return !b.opened.IsZero() &&
		(len(b.entries) >= s.cfg.MaxRecords || b.bytes >= s.cfg.MaxBytes || time.Since(b.opened) >= s.cfg.MaxDelay)
}

// flush writes the block, then commits, and empties it. While the store is away it tries again for
// as long as ctx lasts, and lets partitions go to others meanwhile. An error says that the block is
// not durable; it then still holds what is to be written.
func (s *Service) flush(ctx context.Context, cl *kgo.Client, b *block) error {
	for try := 0; ; try++ {
		err := s.write(ctx, b)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return err
		}
		s.metrics.writeErrors.Inc()
		s.stands(err)
		s.cfg.Logger.Log(ctx, s.level(err), "writing to the store failed; trying again", "error", err)
		s.busy.Store(time.Now().UnixNano())
		cl.AllowRebalance()
		s.wait(ctx, try)
		s.owned.current(b)
	}
	s.stands(nil)
	clear(s.said)
	s.commit(ctx, cl, b)
	return nil
}

// writeTimeout bounds one call of the store, which may be many statements: less than the 5 minutes after which
// a turn counts as one that stands still. What of it was done before costs little when it is tried again.
const writeTimeout = 4 * time.Minute

// write makes all entries durable. After an error some may be: to write them again changes nothing.
func (s *Service) write(ctx context.Context, b *block) error {
	for _, part := range b.parts(s.cfg.MaxRecords, s.cfg.MaxBytes) {
		start := time.Now()
		s.busy.Store(start.UnixNano())
		if err := s.writePart(ctx, part); err != nil {
			return fmt.Errorf("writing block: %w", err)
		}
		s.metrics.writeDuration.Observe(time.Since(start).Seconds())
		s.metrics.blockRecords.Observe(float64(len(part)))
	}
	if len(b.entries) > 0 {
		s.metrics.blockBytes.Observe(float64(b.bytes))
	}
	for _, e := range b.entries {
		s.metrics.age.Observe(max(time.Since(e.timestamp).Seconds(), 0))
	}
	for p := range b.progress {
		s.metrics.lag.Done(p)
	}
	return nil
}

func (s *Service) writePart(ctx context.Context, part []store.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return s.store.Write(ctx, part)
}

// commit moves the group's offsets behind what is durable. If that fails, the offsets stay in the
// emptied block, which is due again after MaxDelay.
func (s *Service) commit(ctx context.Context, cl *kgo.Client, b *block) {
	topic := s.cfg.Kafka.Topics().Runs
	done := b.progress
	*b = *newBlock()
	err := s.owned.whileCurrent(done, func(ours map[int32]progress) error {
		offsets := make(map[int32]kgo.EpochOffset, len(ours))
		for p, at := range ours {
			offsets[p] = kgo.EpochOffset{Epoch: at.leaderEpoch, Offset: at.next}
		}
		return commitSync(ctx, cl, map[string]map[int32]kgo.EpochOffset{topic: offsets})
	})
	if err == nil {
		return
	}
	b.progress, b.opened = done, time.Now()
	if ctx.Err() == nil {
		s.metrics.commitErrors.Inc()
		s.cfg.Logger.Log(ctx, s.level(err), "committing offsets failed; trying again with the next block", "topic", topic, "error", err)
	}
}

// drain writes and commits what was read before ctx ended. If that does not work in time, the next
// owner reads it again.
func (s *Service) drain(ctx context.Context, cl *kgo.Client, b *block) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.DrainTimeout)
	defer cancel()
	s.owned.current(b)
	if len(b.progress) == 0 {
		return nil
	}
	return s.flush(ctx, cl, b)
}

// wait pauses before another try: doubling, with a random part, until ctx ends.
func (s *Service) wait(ctx context.Context, try int) {
	d := s.cfg.MaxBackoff
	if try < 30 {
		d = min(s.cfg.MinBackoff<<try, s.cfg.MaxBackoff)
	}
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
