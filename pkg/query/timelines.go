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
	// timelineParts: one run's timeline takes up to this part of the cache, as do those that are read at the same time each.
	timelineParts = 4
	// timelineReads is how many runs one tenant has read from the log at the same time.
	timelineReads = 2
	// timelineIdle is how long a timeline stays that nobody steps through: what was erased is not to stay in memory.
	timelineIdle = 10 * time.Minute
)

// timelines are the runs that were stepped through last, so that the next step costs its event and not the run. They hold a bounded
// number of bytes; where there is no room, the tenant that holds most gives up the run that it has not looked at for longest.
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

// tenantTimelines is what one tenant has in the cache.
type tenantTimelines struct {
	held    int64
	reads   int
	recents *lru.List // of *cachedRun, the last used one first
}

// cachedRun is one run of the cache. Who holds turn may use and change the reader.
type cachedRun struct {
	key timelineKey
	// told names what the record says of the run's beginning. A run that is told otherwise is another one.
	told   string
	turn   chan struct{}
	reader *timeline.Reader // nil before it is read

	// The cache's own.
	bytes int64
	used  time.Time
	at    *lru.Element // nil once it was given up
}

func newTimelines(limit int64, m *metrics) *timelines {
	return &timelines{
		limit: limit, metrics: m, reads: make(chan struct{}, timelineParts),
		byRun: map[timelineKey]*cachedRun{}, tenants: map[string]*tenantTimelines{},
	}
}

// of returns what a tenant has.
func (t *timelines) of(tenant string) *tenantTimelines {
	have := t.tenants[tenant]
	if have == nil {
		have = &tenantTimelines{recents: lru.New()}
		t.tenants[tenant] = have
	}
	return have
}

// take returns a run, and its turn. Give that back with release.
func (t *timelines) take(ctx context.Context, key timelineKey, told string) (*cachedRun, error) {
	c := t.find(key, told)
	select {
	case c.turn <- struct{}{}:
		return c, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the run to be read: %w", ctx.Err())
	}
}

func (t *timelines) find(key timelineKey, told string) *cachedRun {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.byRun[key]
	if c != nil && c.told != told {
		t.drop(c)
		c = nil
	}
	if c == nil {
		c = &cachedRun{key: key, told: told, turn: make(chan struct{}, 1)}
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

// release gives a turn back; the run holds so many bytes by now, and below zero it is not kept.
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

// drop gives a run up. Who has its turn goes on with it.
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

// tidy forgets a tenant that has nothing.
func (t *timelines) tidy(tenant string) {
	if have := t.tenants[tenant]; have.recents.Len() == 0 && have.reads == 0 {
		delete(t.tenants, tenant)
	}
}

// forgetIdle drops what nobody has used for long.
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

// forget drops the runs of a thread that is not there any more.
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

// read takes one of the slots for reading a run from the log; call the result to release it.
func (t *timelines) read(ctx context.Context, tenant string) (release func(), err error) {
	t.mu.Lock()
	have := t.of(tenant)
	if have.reads >= timelineReads {
		t.mu.Unlock()
		return nil, later(fmt.Sprintf("%d runs are being read for you; try again", timelineReads))
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
