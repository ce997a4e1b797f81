package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/skeinhq/skein/pkg/kafka"
)

// firstCheckRetry is the pause between requests for the partition counts while they are unknown.
const firstCheckRetry = time.Second

// pin keeps the partition count that the stage found first. A thread's partition depends on this count: after a change,
// a thread would have events in two partitions, with no order between these.
type pin struct {
	adm    *kadm.Client
	topics kafka.Topics
	m      *metrics
	logger *slog.Logger
	// recreated makes the producer and the log's readers forget a topic of events that was deleted and created again.
	recreated func()

	mu     sync.Mutex
	set    kafka.TopicSet
	err    error  // why the stage is not ready; nil if it is
	logged string // the last error that was logged, to avoid repeats; "" after a success
}

// partitions returns the pinned count, or the reason why the stage is not ready.
func (p *pin) partitions() (int32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.set.Partitions, p.err
}

// check compares the topics with the pinned count. Once the stage is ready, unreachable brokers do not make it unready:
// the producer notices whether Kafka accepts records.
func (p *pin) check(ctx context.Context) {
	set, err := kafka.ReadTopicSet(ctx, p.adm, p.topics)
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.err
	switch {
	case err != nil && ctx.Err() != nil:
		return // the process stops
	case isVerdict(err):
		p.err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	case err != nil && p.set.Partitions == 0:
		p.err = hide("the partition counts are not known yet", err)
	case err != nil:
		if p.logged != err.Error() {
			p.logged = err.Error()
			p.logger.Warn("checking partition counts", "error", err)
		}
		return
	case p.set.Partitions == 0:
		p.set, p.err = set, nil
	default:
		p.err = set.Compare(p.set)
		if errors.Is(p.err, kafka.ErrOtherTopics) {
			p.logger.Warn("topics were deleted and made again: going on with these", "topic", p.topics.Events)
			if set.IDs[0] != p.set.IDs[0] {
				p.recreated()
			}
			p.set, p.err = set, nil
		}
		if p.err != nil {
			p.err = fmt.Errorf("%w: %w: a thread's events would come to lie in two partitions; copy into a new topic set instead and restart", ErrUnavailable, p.err)
		}
	}
	if err == nil {
		p.logged = ""
	}
	p.m.open.Set(0)
	if p.err == nil {
		p.m.open.Set(1)
	}
	switch {
	case p.err != nil && (was == nil || was.Error() != p.err.Error()):
		p.logger.Error("not ready", "error", p.err)
	case p.err == nil && was != nil:
		p.logger.Info("ready", "partitions", p.set.Partitions)
	}
}

// watch calls check until ctx ends. The argument every is the interval; until the counts are known, it is at most a
// second.
func (p *pin) watch(ctx context.Context, every time.Duration) {
	for {
		cctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		p.check(cctx)
		cancel()
		wait := every
		if n, _ := p.partitions(); n == 0 {
			wait = min(every, firstCheckRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// isVerdict reports whether an error is about the topics themselves, not about unreachable brokers.
func isVerdict(err error) bool {
	return errors.Is(err, kafka.ErrPartitionCounts) || errors.Is(err, kafka.ErrNoTopic)
}
