package indexer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/store"
)

// Service is the indexer. One goroutine polls, one decodes what was polled into blocks, and one writes blocks and commits.
// Each waits for the next one, so that what is in memory is bounded.
type Service struct {
	cfg     Config
	store   store.Writer
	metrics *metrics
	owned   *assignment

	mu    sync.Mutex
	fault error // why the last block could not be written; nil: it could

	// busy is since when the writer has been at its present turn, in nanoseconds; 0 while it waits for a block.
	busy atomic.Int64
	size *blockSize
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
	return &Service{cfg: cfg, store: w, metrics: m, owned: newAssignment(m.partitions, m.lag, m.stops), size: newBlockSize(cfg)}, nil
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

// setFault sets what keeps the store from taking blocks, for Ready; nil is nothing.
func (s *Service) setFault(fault error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Run indexes until ctx ends; then it writes what it has decoded, commits, leaves the group and returns
// nil. The topics and the store's schema must be there. While the store or Kafka is away it waits and
// tries again. An error is one that waiting does not mend. Run is called once.
func (s *Service) Run(ctx context.Context) error {
	if err := s.follow(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	cl, err := kafka.NewGroupReader(s.cfg.Kafka, kafka.GroupOptions{
		Group:      s.cfg.Group,
		InstanceID: s.cfg.InstanceID,
		Topics:     []string{s.cfg.Kafka.Topics().Runs},
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
	err = s.index(ctx, cl)
	member, _ := cl.GroupMetadata()
	cl.CloseAllowingRebalance()
	if err != nil || s.cfg.InstanceID == "" || member == "" { // one that never joined would take the other of its name out
		return err
	}
	// A static member that stops keeps its partitions, for the session's time, for a restart. This one may not come back.
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := kafka.LeaveGroup(leaving, s.cfg.Kafka, s.cfg.Group, member, s.cfg.InstanceID); err != nil {
		s.cfg.Logger.WarnContext(ctx, "leaving the group failed; its partitions stand still until the session has timed out", "error", err)
	}
	return nil
}

// index runs the three stages until ctx ends, and the last two until the blocks that are begun are written or DrainTimeout is over. What is in no
// block yet is read again.
func (s *Service) index(ctx context.Context, cl *kgo.Client) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(s.cfg.DrainTimeout, cancel) })()
	polls, ended, blocks := make(chan polled), make(chan struct{}), make(chan *block)
	p := &poller{Service: s, logged: logged{}}
	g := &gatherer{
		Service: s, client: cl, block: newBlock(), blocks: blocks, ended: ended,
		backlog: backlog{client: cl, topic: s.cfg.Kafka.Topics().Runs, stopped: s.metrics.stops.Has},
	}
	w := &writer{Service: s, client: cl, logged: logged{}, durable: map[int32]progress{}}
	var stages errgroup.Group
	stages.Go(func() error {
		defer close(ended)
		return p.run(ctx, cl, polls)
	})
	stages.Go(func() error { g.run(work, polls); return nil })
	stages.Go(func() error {
		defer cancel() // nobody takes blocks any more
		return w.run(work, blocks)
	})
	return stages.Wait()
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
	logged := logged{}
	for try := 0; ctx.Err() == nil; try++ {
		err := s.followOnce(ctx, adm)
		switch {
		case errors.Is(err, store.ErrOtherTopic):
			return fmt.Errorf("reading %s: %w; empty the store and reset group %s to build the index anew", s.cfg.Kafka.Topics().Runs, err, s.cfg.Group)
		case err == nil:
			s.setFault(nil)
			return nil
		case ctx.Err() == nil:
			s.setFault(err)
			s.cfg.Logger.Log(ctx, logged.level(err), "asking what to index failed; trying again", "error", err)
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

// Turned returns when the writer last came round: took a block, or tried to write one. It is now while it waits for one.
// While the store or Kafka does not answer one turn may take 4 minutes; else seconds.
func (s *Service) Turned() time.Time {
	if at := s.busy.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Now()
}

// wait pauses before another try: doubling, with a random part, until ctx ends.
func (s *Service) wait(ctx context.Context, try int) { s.cfg.wait(ctx, try) }

func (c Config) wait(ctx context.Context, try int) {
	d := c.MaxBackoff
	if try < 30 {
		d = min(c.MinBackoff<<try, c.MaxBackoff)
	}
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
