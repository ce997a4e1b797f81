package query

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/skeinhq/skein/internal/share"
	"github.com/skeinhq/skein/pkg/timeline"
)

const (
	// timelineParts is the number of parts of the cache. One run's timeline may take one part.
	timelineParts = 4
	// timelineIdle is how long an unused timeline is kept. It bounds how long erased data stays in memory.
	timelineIdle = 10 * time.Minute
)

// timelines caches the timelines of runs, so that the next step of a run costs one event and not the whole run. When
// the cache is full, it evicts the least recently used run of the tenant that holds most.
type timelines struct {
	metrics *metrics
	bytes   *share.Pool

	mu    sync.Mutex
	byRun map[timelineKey]*cachedRun
	sweep *time.Timer // runs while the cache is not empty
}

type timelineKey struct{ tenant, thread, run string }

// cachedRun is one run in the cache. Its channel turn is a lock: the holder may use and change reader and cursor.
type cachedRun struct {
	key timelineKey
	// origin identifies the start of the run as the run's record describes it. If it has changed, the timeline is stale.
	origin string
	turn   chan struct{}
	reader *timeline.Reader // nil before it is read
	// cursor is where the last request ended, as the next one usually continues there; nil if there is none.
	cursor *timeline.Cursor

	// Only the cache uses these.
	bytes int64
	used  time.Time
}

// size returns what the cache counts for the run, in bytes; -1 before the timeline is read.
func (c *cachedRun) size() int64 {
	if c.reader == nil {
		return -1
	}
	n := c.reader.Bytes() + c.reader.FoldBytes()
	if c.cursor != nil {
		n += c.cursor.Bytes()
	}
	return n
}

func newTimelines(limit int64, m *metrics) *timelines {
	return &timelines{metrics: m, bytes: share.NewPool(limit), byRun: map[timelineKey]*cachedRun{}}
}

// acquire waits for the lock of a run and returns the run. Call release when done.
func (t *timelines) acquire(ctx context.Context, key timelineKey, origin string) (*cachedRun, error) {
	c := t.find(key, origin)
	select {
	case c.turn <- struct{}{}:
		return c, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the run to be read: %w", ctx.Err())
	}
}

func (t *timelines) find(key timelineKey, origin string) *cachedRun {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.byRun[key]
	if c != nil && c.origin != origin {
		t.drop(c)
		c = nil
	}
	if c == nil {
		c = &cachedRun{key: key, origin: origin, turn: make(chan struct{}, 1)}
		t.byRun[key] = c
	}
	c.used = time.Now()
	if t.sweep == nil {
		t.sweep = time.AfterFunc(timelineIdle, t.forgetIdle)
	}
	return c
}

// release unlocks a run. bytes is the current size of the run; a negative one drops the run from the cache.
func (t *timelines) release(c *cachedRun, bytes int64) {
	t.mu.Lock()
	if t.byRun[c.key] == c {
		if t.count(c, bytes-c.bytes); bytes < 0 {
			t.drop(c)
		}
	}
	for t.bytes.Over() > 0 {
		t.drop(t.leastUsed(t.bytes.Heaviest()))
	}
	t.mu.Unlock()
	<-c.turn
}

func (t *timelines) count(c *cachedRun, bytes int64) {
	c.bytes += bytes
	t.bytes.Add(c.key.tenant, bytes)
	t.metrics.timelineBytes.Set(float64(t.bytes.Held()))
}

// leastUsed returns the least recently used run of these tenants among those that hold memory; nil if none does.
func (t *timelines) leastUsed(tenants []string) *cachedRun {
	var oldest *cachedRun
	for _, c := range t.byRun {
		if c.bytes > 0 && slices.Contains(tenants, c.key.tenant) && (oldest == nil || c.used.Before(oldest.used)) {
			oldest = c
		}
	}
	return oldest
}

// drop evicts a run. The holder of its lock may still use it.
func (t *timelines) drop(c *cachedRun) {
	t.count(c, -c.bytes)
	delete(t.byRun, c.key)
}

// forgetIdle evicts runs that were not used for timelineIdle.
func (t *timelines) forgetIdle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.byRun {
		if time.Since(c.used) >= timelineIdle {
			t.drop(c)
		}
	}
	if t.sweep = nil; len(t.byRun) > 0 {
		t.sweep = time.AfterFunc(timelineIdle/2, t.forgetIdle)
	}
}

// forget evicts the runs of a thread that no longer exists.
func (t *timelines) forget(tenant, thread string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, c := range t.byRun {
		if key.tenant == tenant && key.thread == thread {
			t.drop(c)
		}
	}
}
