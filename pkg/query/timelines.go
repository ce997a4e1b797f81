package query

import (
	lru "container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/skeinhq/skein/pkg/timeline"
)

const (
	// timelineParts divides the cache: one run's timeline may take one part, and that many runs are read from the log at the same time.
	timelineParts = 4
	// timelineReads bounds how many runs of one tenant are read from the log at the same time.
	timelineReads = 2
	// timelineIdle is how long an unused timeline is kept. It bounds how long erased data stays in memory.
	timelineIdle = 10 * time.Minute
)

// timelines caches the timelines of runs, so that the next step of a run costs one event and not the whole run. Its size is bounded: when it
// is full, it evicts the least recently used run of the tenant that holds most.
type timelines struct {
	limit   int64
	metrics *metrics
	reads   chan struct{}

	mu      sync.Mutex
	held    int64
	byRun   map[timelineKey]*cachedRun
	sweep   *time.Timer // runs while there is something
	tenants map[string]*tenantTimelines
}

type timelineKey struct{ tenant, thread, run string }

// tenantTimelines is one tenant's part of the cache.
type tenantTimelines struct {
	held    int64
	reads   int
	recents *lru.List // of *cachedRun, most recently used first
}

// cachedRun is one run in the cache. The holder of turn may use and change the reader.
type cachedRun struct {
	key timelineKey
	// origin identifies what the run's record says of its beginning. With another origin the timeline is stale.
	origin string
	turn   chan struct{}
	reader *timeline.Reader // nil before it is read

	// The cache's own.
	bytes int64
	used  time.Time
	at    *lru.Element // nil once evicted
}

func newTimelines(limit int64, m *metrics) *timelines {
	return &timelines{
		limit: limit, metrics: m, reads: make(chan struct{}, timelineParts),
		byRun: map[timelineKey]*cachedRun{}, tenants: map[string]*tenantTimelines{},
	}
}

// of returns a tenant's part of the cache.
func (t *timelines) of(tenant string) *tenantTimelines {
	have := t.tenants[tenant]
	if have == nil {
		have = &tenantTimelines{recents: lru.New()}
		t.tenants[tenant] = have
	}
	return have
}

// acquire returns a run with its turn. Call release when done.
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
		c.at = t.of(key.tenant).recents.PushFront(c)
		t.byRun[key] = c
	}
	c.used = time.Now()
	if t.sweep == nil {
		t.sweep = time.AfterFunc(timelineIdle, t.forgetIdle)
	}
	t.of(key.tenant).recents.MoveToFront(c.at)
	return c
}

// release ends a turn. bytes is the current size of the run; a negative one drops it from the cache.
func (t *timelines) release(c *cachedRun, bytes int64) {
	t.mu.Lock()
	if c.at != nil {
		if t.count(c, bytes-c.bytes); bytes < 0 {
			t.drop(c)
		}
	}
	for t.held > t.limit {
		t.drop(t.heaviest().oldest())
	}
	t.metrics.timelineBytes.Set(float64(t.held))
	t.mu.Unlock()
	<-c.turn
}

func (t *timelines) count(c *cachedRun, bytes int64) {
	c.bytes += bytes
	t.held += bytes
	t.of(c.key.tenant).held += bytes
}

// heaviest returns the tenant that holds most; of several that hold as much, the one whose oldest run was used the longest ago. It needs
// a tenant that has a run.
func (t *timelines) heaviest() *tenantTimelines {
	var most *tenantTimelines
	for _, have := range t.tenants {
		if have.recents.Len() > 0 && (most == nil || have.held > most.held || have.held == most.held && have.oldest().used.Before(most.oldest().used)) {
			most = have
		}
	}
	return most
}

// oldest returns the run that was not used for the longest time.
func (t *tenantTimelines) oldest() *cachedRun { return t.recents.Back().Value.(*cachedRun) }

// drop evicts a run. The holder of its turn may still use it.
func (t *timelines) drop(c *cachedRun) {
	t.count(c, -c.bytes)
	have := t.of(c.key.tenant)
	have.recents.Remove(c.at)
	c.at = nil
	if t.byRun[c.key] == c {
		delete(t.byRun, c.key)
	}
	t.tidy(c.key.tenant)
}

// tidy removes a tenant that holds nothing.
func (t *timelines) tidy(tenant string) {
	if have := t.tenants[tenant]; have.recents.Len() == 0 && have.reads == 0 {
		delete(t.tenants, tenant)
	}
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
	t.metrics.timelineBytes.Set(float64(t.held))
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
	t.metrics.timelineBytes.Set(float64(t.held))
}

// read acquires a slot for reading a run from the log; call the result to release it.
func (t *timelines) read(ctx context.Context, tenant string) (release func(), err error) {
	t.mu.Lock()
	have := t.of(tenant)
	if have.reads >= timelineReads {
		t.mu.Unlock()
		return nil, later(fmt.Sprintf("%d runs of this tenant are being read already; try again", timelineReads))
	}
	have.reads++
	t.mu.Unlock()
	done := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		have.reads--
		t.tidy(tenant)
	}
	select {
	case t.reads <- struct{}{}:
		return func() { <-t.reads; done() }, nil
	case <-ctx.Done():
		done()
		return nil, fmt.Errorf("waiting to read a run: %w", ctx.Err())
	}
}
