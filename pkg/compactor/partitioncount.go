package compactor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/skeinhq/skein/pkg/kafka"
)

// partitionCounts detects partitions that are added to the topics, which would silently split threads.
type partitionCounts struct {
	admin  *kadm.Client
	topics kafka.Topics
	set    kafka.TopicSet // at the start of the session
	logger *slog.Logger
	now    func() time.Time

	checkedAt time.Time
	heldAt    time.Time // when a transaction began to wait for an answer; zero if none waits
	lastError string    // the last one that was logged
}

const (
	// countsEvery is the time between two checks.
	countsEvery = 30 * time.Second
	// misplacedEvery is the least time between the brokers' answer and the next check for records on the wrong partition.
	// It must exceed the time for which the client caches metadata (250 ms), as cached metadata may be older than the
	// record. It is only a little longer, as all transactions wait for it.
	misplacedEvery = 300 * time.Millisecond
	// misplacedWait is the longest time that a transaction waits for partition counts. Runs grow meanwhile, as they leave
	// memory only after a transaction. The time allows several tries; one takes 2 s if a broker does not answer.
	misplacedWait = 10 * time.Second
)

// shorten returns the length of a cycle, which is short while a transaction waits for partition counts.
func (c *partitionCounts) shorten(interval time.Duration, misplaced bool) time.Duration {
	if now := c.now(); misplaced && c.isFresh(now) {
		return min(interval, misplacedEvery-now.Sub(c.checkedAt))
	}
	return interval
}

// isFresh reports whether the last check was so recent that a check now may get cached metadata older than a record.
func (c *partitionCounts) isFresh(now time.Time) bool { return now.Sub(c.checkedAt) < misplacedEvery }

// checkNowAndThen checks the counts if the last check was at least countsEvery ago.
func (c *partitionCounts) checkNowAndThen(ctx context.Context) error {
	now := c.now()
	if c.checkedAt.IsZero() {
		c.checkedAt = now
	}
	if now.Sub(c.checkedAt) < countsEvery {
		return nil
	}
	known, err := c.check(ctx)
	if !known { // a broker is away: transactions will fail if it matters
		c.logger.Debug("checking partition counts", "error", err)
		return nil
	}
	return err
}

// confirmMisplaced checks the counts before a transaction that sends records on the wrong partition to dead letters, as
// their producer may know of added partitions. The transaction waits (known is false) if the last check is fresh or the
// brokers do not answer: only a new answer shows whose mistake it is. If they do not answer within misplacedWait, the
// session ends and discards what is in memory; the next session joins only once they answer.
func (c *partitionCounts) confirmMisplaced(ctx context.Context, misplaced bool) (known bool, err error) {
	now := c.now()
	if !misplaced {
		c.heldAt = time.Time{}
		return true, nil
	}
	if c.heldAt.IsZero() {
		c.heldAt = now
	}
	if c.isFresh(now) {
		return false, nil
	}
	known, err = c.check(ctx)
	if known {
		c.heldAt = time.Time{}
		return true, err
	}
	if c.now().Sub(c.heldAt) > misplacedWait {
		return false, fmt.Errorf("records are on the wrong partition, and for %v brokers have not said how many there are: %w", misplacedWait, err)
	}
	if c.lastError != err.Error() {
		c.lastError = err.Error()
		c.logger.Warn("records are on the wrong partition, and brokers do not say how many there are: nothing is committed until they do", "error", err)
	}
	return false, nil
}

// check compares the topics with those of the session's start: added partitions stop the compactor. Deleted and
// recreated topics end the session, as the client would wait for the old ones for ever. If the brokers do not answer,
// known is false and the error is the reason.
func (c *partitionCounts) check(ctx context.Context) (known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	set, err := kafka.ReadTopicSet(ctx, c.admin, c.topics)
	c.checkedAt = c.now() // set after the answer, as the client's cache counts from then
	switch {
	case errors.Is(err, kafka.ErrPartitionCounts), errors.Is(err, kafka.ErrNoTopic):
		return true, err
	case err != nil:
		return false, err
	}
	return true, set.Compare(c.set)
}
