package compactor

import (
	"log/slog"
	"sync"
	"time"
)

// catchUps tell how far the catch-ups of a session are, in the log and in metrics: on an empty folder
// one reads all of a partition of skein.runs.
type catchUps struct {
	logger  *slog.Logger
	metrics *Metrics

	mu  sync.Mutex
	all map[*catchUp]struct{}
}

func newCatchUps(logger *slog.Logger, metrics *Metrics) *catchUps {
	return &catchUps{logger: logger, metrics: metrics, all: map[*catchUp]struct{}{}}
}

// catchUp is the progress of one. It counts offsets: compaction leaves fewer records than offsets, so
// the time left is an upper estimate where much was compacted.
type catchUp struct {
	of        *catchUps
	partition int32
	first     int64
	next      int64
	end       int64 // behind the fence
	records   int
	bytes     int
	began     time.Time
	told      time.Time
}

// tellEvery is the time between two lines about one catch-up.
const tellEvery = 10 * time.Second

func (c *catchUps) begin(partition int32, next, end int64, now time.Time) *catchUp {
	u := &catchUp{of: c, partition: partition, first: next, next: next, end: end, began: now, told: now}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[u] = struct{}{}
	c.show(now)
	return u
}

// read notes what was read and applied: the next offset is next.
func (u *catchUp) read(records, bytes int, next int64, now time.Time) {
	c := u.of
	c.mu.Lock()
	defer c.mu.Unlock()
	u.records, u.bytes, u.next = u.records+records, u.bytes+bytes, next
	c.metrics.CatchUp.Add(float64(records))
	c.metrics.CatchUpBytes.Add(float64(bytes))
	c.show(now)
	if now.Sub(u.told) >= tellEvery {
		u.told = now
		c.logger.Info("catching up with run records", "partition", u.partition, "offset", u.next, "until", u.end,
			"records", u.records, "bytes", u.bytes, "left", u.left(now).Round(time.Second).String())
	}
}

// done takes it out of the metrics, however it ended.
func (u *catchUp) done(now time.Time) {
	c := u.of
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, u)
	c.show(now)
}

// left is how long it will take at its pace so far; 0 until there is one.
func (u *catchUp) left(now time.Time) time.Duration {
	if u.next <= u.first {
		return 0
	}
	return time.Duration(float64(now.Sub(u.began)) * float64(u.end-u.next) / float64(u.next-u.first))
}

// show sets the gauges: offsets of all, and the time of the one that takes longest.
func (c *catchUps) show(now time.Time) {
	var offsets int64
	var left time.Duration
	for u := range c.all {
		offsets += max(0, u.end-u.next)
		left = max(left, u.left(now))
	}
	c.metrics.CatchUpLeft.Set(float64(offsets))
	c.metrics.CatchUpLeftSeconds.Set(left.Seconds())
}
