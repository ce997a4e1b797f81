package compactor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/kafka"
)

// readRuns reads skein.runs into the store, up to a record at or above the acknowledged fence. Two other ends would be
// wrong: the last stable offset, as transaction markers lag, and the high watermark, as control records are invisible.
// If compaction has removed our fence, the later fence that replaced it ends the read.
func (o *opener) readRuns(a *assignment, store *runstore.Store) error {
	from := store.Followed().NextOffset
	if from > a.fence {
		return nil
	}
	if from == 0 {
		from = kafka.Earliest
	}
	reader, err := kafka.NewDirectReader(o.kafka, o.topics.Runs, map[int32]int64{a.id: from},
		// Unpacked, run records take some 10 times as many bytes, and those of short, similar runs 40 times. A batch over the
		// limit is fetched alone.
		kgo.FetchMaxPartitionBytes(512<<10), kgo.FetchMaxBytes(1<<20),
		kgo.MaxConcurrentFetches(0)) // nothing is fetched between two slots
	if err != nil {
		return err
	}
	defer reader.Close()
	began := o.now()
	progress := o.catchUps.begin(a.id, store.Followed().NextOffset, a.fence+1, began)
	defer func() { progress.done(o.now()) }()
	for done := false; !done; {
		if done, err = o.readAnswer(a, store, reader, progress); err != nil {
			return err
		}
	}
	return store.Apply(nil, began)
}

const (
	// slotWait is how long a catch-up waits for an answer before it releases its slot.
	slotWait = 200 * time.Millisecond
	// applyBytes is how many bytes of records go into one batch of a local store.
	applyBytes = 1 << 20
)

// readAnswer applies one answer of the broker and reports whether it reached the fence.
func (o *opener) readAnswer(a *assignment, store *runstore.Store, reader *kgo.Client, progress *catchUp) (done bool, err error) {
	release, err := o.stores.Acquire(a.ctx)
	if err != nil {
		return false, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(a.ctx, slotWait)
	fetches := reader.PollFetches(ctx)
	cancel()
	if err := a.ctx.Err(); err != nil {
		return false, err
	}
	for _, e := range fetches.Errors() {
		if !retriable(e.Err) || errors.Is(e.Err, kerr.UnknownTopicID) { // the topic was recreated: the error is permanent
			return false, fmt.Errorf("catching up with %s/%d: %w", e.Topic, e.Partition, e.Err)
		}
	}
	var entries []runstore.Entry
	bytes := 0
	write := func() error {
		if err := store.Apply(entries, time.Time{}); err != nil {
			return err
		}
		progress.read(len(entries), bytes, store.Followed().NextOffset, o.now())
		clear(entries)
		entries, bytes = entries[:0], 0
		return a.ctx.Err()
	}
	for it := fetches.RecordIter(); !it.Done(); {
		m := it.Next()
		e, err := runstore.EntryOf(m)
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

// catchUps reports the catch-ups of a session in the log and in metrics. With an empty local store, a catch-up reads a
// whole partition of skein.runs.
type catchUps struct {
	logger  *slog.Logger
	metrics *metrics

	mu  sync.Mutex
	all map[*catchUp]struct{}
}

func newCatchUps(logger *slog.Logger, metrics *metrics) *catchUps {
	return &catchUps{logger: logger, metrics: metrics, all: map[*catchUp]struct{}{}}
}

// catchUp is the progress of one catch-up, in offsets. As compaction leaves fewer records than offsets, the time left
// is an upper estimate.
type catchUp struct {
	of       *catchUps
	id       int32
	first    int64
	next     int64
	end      int64 // the offset after the fence
	records  int
	bytes    int
	began    time.Time
	loggedAt time.Time
}

// catchUpLogEvery is the time between two log lines about one catch-up.
const catchUpLogEvery = 10 * time.Second

func (c *catchUps) begin(id int32, next, end int64, now time.Time) *catchUp {
	u := &catchUp{of: c, id: id, first: next, next: next, end: end, began: now, loggedAt: now}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[u] = struct{}{}
	c.show(now)
	return u
}

// read adds records and bytes that were read and applied. The argument next is the next offset to read.
func (u *catchUp) read(records, bytes int, next int64, now time.Time) {
	c := u.of
	c.mu.Lock()
	defer c.mu.Unlock()
	u.records, u.bytes, u.next = u.records+records, u.bytes+bytes, next
	c.metrics.catchUp.Add(float64(records))
	c.metrics.catchUpBytes.Add(float64(bytes))
	c.show(now)
	if now.Sub(u.loggedAt) >= catchUpLogEvery {
		u.loggedAt = now
		c.logger.Info("catching up with run records", "partition", u.id, "offset", u.next, "until", u.end,
			"records", u.records, "bytes", u.bytes, "left", u.left(now).Round(time.Second).String())
	}
}

// done removes the catch-up from the metrics, however it ended.
func (u *catchUp) done(now time.Time) {
	c := u.of
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, u)
	c.show(now)
}

// left returns the estimated time that remains, or 0 if nothing was read yet.
func (u *catchUp) left(now time.Time) time.Duration {
	if u.next <= u.first {
		return 0
	}
	return time.Duration(float64(now.Sub(u.began)) * float64(u.end-u.next) / float64(u.next-u.first))
}

// show sets the gauges to the remaining offsets of all catch-ups and the remaining time of the slowest one.
func (c *catchUps) show(now time.Time) {
	var offsets int64
	var left time.Duration
	for u := range c.all {
		offsets += max(0, u.end-u.next)
		left = max(left, u.left(now))
	}
	c.metrics.catchUpLeft.Set(float64(offsets))
	c.metrics.catchUpLeftSeconds.Set(left.Seconds())
}
