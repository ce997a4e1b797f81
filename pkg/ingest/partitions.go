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

// firstCheckRetry is how soon the partition counts are asked for again until they are known.
const firstCheckRetry = time.Second

// pin holds the partition count that the stage has started with. The partition of a thread depends on
// it: after a change the same thread would have events in two partitions, in no order.
type pin struct {
	adm    *kadm.Client
	topics kafka.Topics
	m      *metrics
	logger *slog.Logger
	// anew makes the producer forget the old topics after topics of the same names were created again.
	anew func()

	mu   sync.Mutex
	set  kafka.TopicSet
	err  error  // why the stage is not ready; nil: it is
	said string // what was logged since the brokers last answered
}

// partitions returns the pinned count, or why there is none.
func (p *pin) partitions() (int32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.set.Partitions, p.err
}

// check compares the topics with the pinned count. An answer that does not come changes nothing once
// the stage is ready: whether Kafka takes records shows when it is given one.
func (p *pin) check(ctx context.Context) {
	set, err := kafka.ReadTopicSet(ctx, p.adm, p.topics)
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.err
	switch {
	case err != nil && ctx.Err() != nil:
		return // we are stopping
	case err != nil && (p.set.Partitions == 0 || isVerdict(err)):
		p.err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	case err != nil:
		if p.said != err.Error() {
			p.said = err.Error()
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
				p.anew()
			}
			p.set, p.err = set, nil
		}
		if p.err != nil {
			p.err = fmt.Errorf("%w: %w: a thread's events would come to lie in two partitions; copy into a new topic set instead and restart", ErrUnavailable, p.err)
		}
	}
	if err == nil {
		p.said = ""
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

// watch checks until ctx ends.
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

// isVerdict reports whether err is about the topics themselves, rather than about brokers that do not answer.
func isVerdict(err error) bool {
	return errors.Is(err, kafka.ErrPartitionCounts) || errors.Is(err, kafka.ErrNoTopic)
}
