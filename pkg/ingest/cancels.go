package ingest

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// readOn is how long a partition is read on behind the last run that the process held there: most often another one begins soon, and
// to begin to read takes a round of requests.
const readOn = 30 * time.Second

// cancelReader reads the requests to stop runs (records of kind cancel), on the partitions of skein.events on which this process holds
// runs. It is no member of a group, and begins at a partition's end: what was asked before the process held a run there is not about
// that run.
type cancelReader struct {
	topic  string
	logger *slog.Logger
	client *kgo.Client
	// cancel ends a run of a thread's key; it reports whether this process held it.
	cancel func(threadKey, runID string) bool
	readOn time.Duration
	stops  *kafka.VersionStops

	changed chan struct{}
	mu      sync.Mutex
	// held are the partitions with runs; left are those without runs any more, and since when. Lost are those that cannot be read at
	// the reader's offset: all of them after the topic was created again.
	held map[int32]bool
	left map[int32]time.Time
	lost map[int32]bool
	anew bool

	reading map[int32]bool // of follow
}

func newCancelReader(cfg kafka.Config, stops *kafka.VersionStops, cancel func(threadKey, runID string) bool) (*cancelReader, error) {
	logger := cfg.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	topic := cfg.Topics().Events
	limits, err := kafka.OneAnswer()
	if err != nil {
		return nil, err
	}
	client, err := kafka.NewDirectReader(cfg, topic, nil, limits...)
	if err != nil {
		return nil, err
	}
	return &cancelReader{
		topic: topic, logger: logger, client: client, cancel: cancel, readOn: readOn, stops: stops, changed: make(chan struct{}, 1),
		held: map[int32]bool{}, left: map[int32]time.Time{}, lost: map[int32]bool{}, reading: map[int32]bool{},
	}, nil
}

// hold is called when the process gets its first run on a partition, and when the last one there ends. It does not block.
func (c *cancelReader) hold(partition int32, held bool) {
	c.mu.Lock()
	if held {
		c.held[partition] = true
		delete(c.left, partition)
	} else {
		delete(c.held, partition)
		c.left[partition] = time.Now()
	}
	c.mu.Unlock()
	c.wake()
}

// topicMadeAnew is called after the topic was deleted and created again.
func (c *cancelReader) topicMadeAnew() {
	c.mu.Lock()
	c.anew = true
	c.mu.Unlock()
	c.wake()
}

func (c *cancelReader) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// run reads until ctx ends.
func (c *cancelReader) run(ctx context.Context) {
	var polling sync.WaitGroup
	polling.Go(func() { c.poll(ctx) })
	defer polling.Wait()
	tick := time.NewTicker(max(c.readOn/4, time.Millisecond))
	defer tick.Stop()
	for {
		c.follow(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
		case <-tick.C:
		}
	}
}

func (c *cancelReader) close() { c.client.Close() }

// follow has the client read the partitions that are to be read, and no others.
func (c *cancelReader) follow(now time.Time) {
	c.mu.Lock()
	add, drop := map[int32]kgo.Offset{}, []int32{}
	anew := c.anew
	c.anew = false
	for p := range c.reading {
		since, idle := c.left[p]
		if over := idle && now.Sub(since) >= c.readOn; over || c.lost[p] || anew {
			drop = append(drop, p)
		}
		if idle && now.Sub(since) >= c.readOn {
			delete(c.left, p)
		}
	}
	for _, p := range drop {
		delete(c.reading, p)
	}
	clear(c.lost)
	for p := range c.held {
		if !c.reading[p] {
			c.reading[p] = true
			add[p] = kgo.NoResetOffset().AtEnd()
		}
	}
	c.mu.Unlock()
	switch {
	case anew:
		c.client.PurgeTopicsFromConsuming(c.topic)
	case len(drop) > 0:
		c.client.RemoveConsumePartitions(map[string][]int32{c.topic: drop})
	}
	c.stops.Remove(drop...) // it begins again at the end
	c.client.ResumeFetchPartitions(map[string][]int32{c.topic: drop})
	if len(add) > 0 {
		c.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{c.topic: add})
	}
}

// poll takes what was read.
func (c *cancelReader) poll(ctx context.Context) {
	for ctx.Err() == nil {
		fetches := c.client.PollFetches(ctx)
		fetches.EachRecord(c.take)
		failed := false
		for _, f := range fetches.Errors() {
			if ctx.Err() != nil || errors.Is(f.Err, kgo.ErrClientClosed) {
				return
			}
			if errors.Is(f.Err, kafka.ErrUnpackLater) {
				continue
			}
			failed = true
			c.logger.Warn("reading requests to stop runs", "topic", f.Topic, "partition", f.Partition, "error", f.Err)
			if errors.Is(f.Err, kerr.OffsetOutOfRange) {
				c.mu.Lock()
				c.lost[f.Partition] = true
				c.mu.Unlock()
			}
		}
		if failed {
			c.pause(ctx)
		}
	}
}

// pause lets a moment pass before what failed is tried again.
func (c *cancelReader) pause(ctx context.Context) {
	c.wake()
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
}

func (c *cancelReader) take(m *kgo.Record) {
	if c.stops.Has(m.Partition) { // fetched together with the record at which it stopped
		return
	}
	if err := kafka.CheckVersion(m); err != nil {
		c.client.PauseFetchPartitions(map[string][]int32{m.Topic: {m.Partition}})
		c.stops.Add(m.Partition, err)
		c.logger.Error("partition stopped: a newer version wrote its next record; runs there cannot be stopped before this process is updated",
			"topic", m.Topic, "partition", m.Partition, "offset", m.Offset, "error", err)
		return
	}
	kind, copied := "", false
	for _, h := range m.Headers { // of most records no more is looked at
		switch h.Key {
		case record.HeaderKind:
			kind = string(h.Value)
		case record.HeaderCopiedFrom: // what was asked of another topic set's proxies
			copied = true
		}
	}
	if kind != string(record.KindCancel) || copied {
		return
	}
	h, err := kafka.ParseHeaders(m.Headers)
	if err != nil || h.RunID == "" {
		return // the compactor makes a dead letter of it
	}
	if c.cancel(string(m.Key), h.RunID) {
		c.logger.Info("a run is stopped as it was asked for", "run_id", h.RunID, "topic", m.Topic, "partition", m.Partition, "offset", m.Offset)
	}
}
