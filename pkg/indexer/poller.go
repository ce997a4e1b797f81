package indexer

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
)

// poller fetches records. It polls again after the gatherer has taken the last ones.
type poller struct {
	*Service
	logged logged
}

// polled is the result of one poll, with the epochs of the assigned partitions at that time.
type polled struct {
	records kgo.Fetches
	epochs  map[int32]int64
}

// pollRecords is how many records one poll returns at most. A batch stays in memory until all of its records are recycled.
const pollRecords = 2_000

// run polls until ctx ends, or returns an error that a retry does not solve.
func (p *poller) run(ctx context.Context, cl *kgo.Client, out chan<- polled) error {
	for ctx.Err() == nil {
		fetches := cl.PollRecords(ctx, min(p.cfg.maxRecords, pollRecords))
		// No rebalance happens between the poll and AllowRebalance.
		got := polled{records: fetches, epochs: p.owned.copyEpochs()}
		cl.AllowRebalance()
		if err := p.check(ctx, fetches); err != nil {
			return err
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		clear(p.logged)
		select {
		case out <- got:
		case <-ctx.Done():
		}
	}
	return nil
}

// check logs the errors of a poll and returns the first one that ends the process.
func (p *poller) check(ctx context.Context, fetches kgo.Fetches) error {
	for _, f := range fetches.Errors() {
		switch {
		case errors.Is(f.Err, context.Canceled), errors.Is(f.Err, kafka.ErrUnpackLater):
			continue
		case errors.Is(f.Err, kerr.FencedInstanceID):
			return fmt.Errorf("reading %s: another indexer has joined group %s with the instance id %s; give each its own: %w",
				p.cfg.Kafka.Topics().Runs, p.cfg.Kafka.IndexerGroup(), p.cfg.InstanceID, f.Err)
		case errors.Is(f.Err, kerr.OffsetOutOfRange), errors.Is(f.Err, kerr.UnknownTopicID):
			p.metrics.fetchErrors.Inc()
			// The topic was created again or truncated: the store's rows come from the old one.
			return fmt.Errorf("reading %s partition %d: the group's offset is not in the log; "+
				"empty the store and reset group %s to rebuild the index: %w",
				f.Topic, f.Partition, p.cfg.Kafka.IndexerGroup(), f.Err)
		}
		p.metrics.fetchErrors.Inc()
		p.cfg.Logger.Log(ctx, p.logged.level(f.Err), "reading failed; trying again", "topic", f.Topic, "partition", f.Partition, "error", f.Err)
		p.cfg.wait(ctx, 0)
	}
	return nil
}
