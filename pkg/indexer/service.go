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

// Service is the indexer.
type Service struct {
	cfg     Config
	store   store.Writer
	metrics *metrics
	owned   *assignment

	mu    sync.Mutex
	fault error // of writing the last block; nil if it succeeded

	// busy is when the writer began its current try, in nanoseconds; 0 while it waits for a block.
	busy atomic.Int64
	size *blockSize
}

// New checks the configuration and registers the metrics, which panics if Config.Registerer has them already. It opens no connection.
func New(cfg Config, w store.Writer) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := newMetrics(cfg.Registerer)
	return &Service{cfg: cfg, store: w, metrics: m, owned: newAssignment(m.partitions, m.lag, m.stops), size: newBlockSize(cfg)}, nil
}

// Ready returns nil if this member has an assignment (which may be empty) and the store has taken the last block.
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

// CheckVersions returns the error of a partition that stopped at a record of a newer Skein, or nil.
func (s *Service) CheckVersions() error { return s.metrics.stops.Check() }

// Lag returns the member's lag, for a kafka.StallWatch.
func (s *Service) Lag() *kafka.Lag { return s.metrics.lag }

// setFault sets the error for Ready; nil means none.
func (s *Service) setFault(fault error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Run indexes until ctx ends; then it writes the decoded records, commits, leaves the group and returns nil. The topics and the store's
// schema must exist. It retries while the store or Kafka is away. It fails if a retry does not help or the drain takes 10 s. Call it once.
func (s *Service) Run(ctx context.Context) error {
	if err := s.follow(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	cl, err := kafka.NewGroupReader(s.cfg.Kafka, kafka.GroupOptions{
		Group:      s.cfg.Kafka.IndexerGroup(),
		InstanceID: s.cfg.InstanceID,
		Topics:     []string{s.cfg.Kafka.Topics().Runs},
		OnAssigned: func(ctx context.Context, cl *kgo.Client, topics map[string][]int32) {
			s.owned.assigned(ctx, cl, topics)
			cl.ResumeFetchPartitions(topics) // an earlier assignment may have paused them
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
	if err != nil || s.cfg.InstanceID == "" || member == "" { // without a member id LeaveGroup would remove another process of the name
		return err
	}
	// A static member that stops keeps its partitions until the session timeout. This one may not come back.
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := kafka.LeaveGroup(leaving, s.cfg.Kafka, s.cfg.Kafka.IndexerGroup(), member, s.cfg.InstanceID); err != nil {
		s.cfg.Logger.WarnContext(ctx, "leaving the group failed; its partitions are not read until the session has timed out", "error", err)
	}
	return nil
}

// index runs the three steps until ctx ends, and the last two until all begun blocks are written or drainTimeout is over.
func (s *Service) index(ctx context.Context, cl *kgo.Client) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(s.cfg.drainTimeout, cancel) })()
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
		defer cancel() // the gatherer must not wait for a writer that has ended
		return w.run(work, blocks)
	})
	return stages.Wait()
}

// follow returns once the store has confirmed that its rows come from the current topic, or ctx has ended. If the topic is deleted and
// created again while no indexer runs, the group has no offsets, and old rows would win over new ones, whose offsets are lower. The
// topic's id shows this.
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
			return fmt.Errorf("reading %s: %w; empty the store and reset group %s to rebuild the index", s.cfg.Kafka.Topics().Runs,
				err, s.cfg.Kafka.IndexerGroup())
		case err == nil:
			s.setFault(nil)
			return nil
		case ctx.Err() == nil:
			s.setFault(err)
			s.cfg.Logger.Log(ctx, logged.level(err), "comparing the topic with the store's failed; trying again", "error", err)
			s.cfg.wait(ctx, try)
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

// Turned returns the time at which the writer last took a block or began a try to write it, or the current time while it waits for a
// block. A try takes seconds, or 4 minutes if the store or Kafka does not answer.
func (s *Service) Turned() time.Time {
	if at := s.busy.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Now()
}

// wait pauses before the next try: exponential backoff with jitter, until ctx ends.
func (c Config) wait(ctx context.Context, try int) {
	d := c.maxBackoff
	if try < 30 {
		d = min(c.minBackoff<<try, c.maxBackoff)
	}
	select {
	case <-time.After(d/2 + rand.N(d/2+1)):
	case <-ctx.Done():
	}
}
