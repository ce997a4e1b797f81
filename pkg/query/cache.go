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
	// cacheParts is the number of parts of the cache. One run's timeline, or one thread, may take one part.
	cacheParts = 4
	// timelineIdle is how long an unused timeline is kept, and followedIdle a followed thread. They bound how long erased data stays in
	// memory.
	timelineIdle, followedIdle = 10 * time.Minute, time.Minute
)

// cache holds the timelines of runs, so that the next step of a run costs one event and not the whole run, and threads that reads have
// followed, so that the next read follows them from there. When the cache is full, it evicts the least recently used entry of the tenant
// that holds most.
type cache struct {
	metrics *metrics
	bytes   *share.Pool

	mu    sync.Mutex
	byKey map[cacheKey]*cached
	sweep *time.Timer // runs while the cache is not empty
}

// cacheKey is a run, or a followed thread, which has no run.
type cacheKey struct{ tenant, thread, run string }

// cached is one entry. Its channel turn is a lock: the holder may use and change reader, cursor and followed.
type cached struct {
	key cacheKey
	// origin identifies the start of the run as the run's record describes it. If it has changed, the timeline is stale.
	origin string
	turn   chan struct{}
	reader *timeline.Reader // nil before it is read
	// cursor is where the last request ended, as the next one usually continues there; nil if there is none.
	cursor *timeline.Cursor
	// followed is the thread, as far as reads have followed it.
	followed *stream

	// Only the cache uses these.
	bytes int64
	used  time.Time
}

// size returns what the cache counts for the entry, in bytes; -1 if there is nothing to keep.
func (c *cached) size() int64 {
	switch {
	case c.followed != nil:
		return c.followed.bytes()
	case c.reader == nil:
		return -1
	}
	n := c.reader.Bytes() + c.reader.FoldBytes()
	if c.cursor != nil {
		n += c.cursor.Bytes()
	}
	return n
}

func newCache(limit int64, m *metrics) *cache {
	return &cache{metrics: m, bytes: share.NewPool(limit), byKey: map[cacheKey]*cached{}}
}

// acquire waits for the lock of an entry and returns the entry. Call release when done.
func (t *cache) acquire(ctx context.Context, key cacheKey, origin string) (*cached, error) {
	c := t.find(key, origin)
	select {
	case c.turn <- struct{}{}:
		return c, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for another read of the same: %w", context.Cause(ctx))
	}
}

func (t *cache) find(key cacheKey, origin string) *cached {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.byKey[key]
	if c != nil && c.origin != origin {
		t.drop(c)
		c = nil
	}
	if c == nil {
		c = &cached{key: key, origin: origin, turn: make(chan struct{}, 1)}
		t.byKey[key] = c
	}
	c.used = time.Now()
	if t.sweep == nil {
		t.sweep = time.AfterFunc(followedIdle, t.forgetIdle)
	}
	return c
}

// release unlocks an entry. bytes is its current size; a negative one drops it from the cache.
func (t *cache) release(c *cached, bytes int64) {
	t.mu.Lock()
	if t.byKey[c.key] == c {
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

func (t *cache) count(c *cached, bytes int64) {
	c.bytes += bytes
	t.bytes.Add(c.key.tenant, bytes)
	t.metrics.cachedBytes.Set(float64(t.bytes.Held()))
}

// leastUsed returns the least recently used entry of these tenants among those that hold memory; nil if none does.
func (t *cache) leastUsed(tenants []string) *cached {
	var oldest *cached
	for _, c := range t.byKey {
		if c.bytes > 0 && slices.Contains(tenants, c.key.tenant) && (oldest == nil || c.used.Before(oldest.used)) {
			oldest = c
		}
	}
	return oldest
}

// drop evicts an entry. The holder of its lock may still use it.
func (t *cache) drop(c *cached) {
	t.count(c, -c.bytes)
	delete(t.byKey, c.key)
}

// forgetIdle evicts what was not used for long.
func (t *cache) forgetIdle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.byKey {
		idle := timelineIdle
		if c.key.run == "" {
			idle = followedIdle
		}
		if time.Since(c.used) >= idle {
			t.drop(c)
		}
	}
	if t.sweep = nil; len(t.byKey) > 0 {
		t.sweep = time.AfterFunc(followedIdle, t.forgetIdle)
	}
}

// forget evicts what it has of a thread that no longer exists.
func (t *cache) forget(tenant, thread string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, c := range t.byKey {
		if key.tenant == tenant && key.thread == thread {
			t.drop(c)
		}
	}
}
