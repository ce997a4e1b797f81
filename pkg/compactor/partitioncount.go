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

// partitionCounts watches whether partitions are added to the topics: threads would be split in silence.
type partitionCounts struct {
	admin  *kadm.Client
	topics kafka.Topics
	set    kafka.TopicSet // as the session found it
	logger *slog.Logger
	now    func() time.Time

	checkedAt time.Time
	heldAt    time.Time // since when a transaction waits for an answer; zero if none does
	lastError string    // that was logged
}

const (
	// countsEvery is the time between two checks.
	countsEvery = 30 * time.Second
	// misplacedEvery is the least time between the brokers' answer and the next check on behalf of records on the wrong
	// partition. It must exceed the time for which the client caches metadata (250 ms), which may be older than the record.
	// It is not longer than that, as all transactions wait for it.
	misplacedEvery = 300 * time.Millisecond
	// misplacedWait is how long a transaction waits for partition counts at most. Only transactions let runs leave
	// memory, so runs grow meanwhile. It is time for some tries: one takes 2 s where a broker is silent.
	misplacedWait = 10 * time.Second
)

// shorten returns how long a cycle may be: a transaction that waits for partition counts is late already.
func (c *partitionCounts) shorten(interval time.Duration, misplaced bool) time.Duration {
	if now := c.now(); misplaced && c.isFresh(now) {
		return min(interval, misplacedEvery-now.Sub(c.checkedAt))
	}
	return interval
}

// isFresh reports whether the brokers were asked so recently that their answer may be from before a record came.
func (c *partitionCounts) isFresh(now time.Time) bool { return now.Sub(c.checkedAt) < misplacedEvery }

// checkNowAndThen checks the counts once the last check is long ago.
func (c *partitionCounts) checkNowAndThen(ctx context.Context) error {
	now := c.now()
	if c.checkedAt.IsZero() {
		c.checkedAt = now
	}
	if now.Sub(c.checkedAt) < countsEvery {
		return nil
	}
	known, err := c.check(ctx)
	if !known { // a broker is away: the transactions will tell
		c.logger.Debug("checking partition counts", "error", err)
		return nil
	}
	return err
}

// confirmMisplaced checks the counts before a transaction that sends records to dead letters because they are on the
// wrong partition: their producer may know of partitions that were added. The transaction waits (known is false) where
// the brokers were asked a moment ago, or do not say: whose mistake it is must not be guessed. Where they do not say for
// long the session ends, and with it what waits in memory: the next one does not join before they do.
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

// check compares the topics with what the session found: added partitions stop the compactor. Topics that are gone, or
// were created again, end the session, as the client would wait for the old ones for ever. Where the brokers do not say
// how it stands (known is false), the error is why.
func (c *partitionCounts) check(ctx context.Context) (known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	set, err := kafka.ReadTopicSet(ctx, c.admin, c.topics)
	c.checkedAt = c.now() // not before: the client keeps an answer from when it came
	switch {
	case errors.Is(err, kafka.ErrPartitionCounts), errors.Is(err, kafka.ErrNoTopic):
		return true, err
	case err != nil:
		return false, err
	}
	return true, set.Compare(c.set)
}
