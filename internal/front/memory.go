package front

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/share"
)

// Memory is a stage's memory budget in bytes. Tenants share it by the rule of share.Pool. They acquire bytes before
// they use them.
type Memory struct {
	*share.Pool
	// Gauge shows the acquired bytes; nil means no metric.
	Gauge prometheus.Gauge
	// Leave is how many bytes of its share a tenant's new claims must leave for its existing ones. Wait is how long an
	// existing claim waits for bytes.
	Leave int64
	Wait  time.Duration
}

func (m *Memory) gauge(n int64) {
	if m.Gauge != nil {
		m.Gauge.Add(float64(n))
	}
}

// Try acquires n bytes and reports whether the tenant's share has them.
func (m *Memory) Try(tenant string, n int64) bool {
	ok := m.Pool.Take(tenant, n)
	if ok {
		m.gauge(n)
	}
	return ok
}

// Acquire acquires n bytes. It waits for them until ctx ends.
func (m *Memory) Acquire(ctx context.Context, tenant string, n int64) error {
	if err := m.Pool.Wait(ctx, tenant, n); err != nil {
		return err
	}
	m.gauge(n)
	return nil
}

// Release releases n bytes.
func (m *Memory) Release(tenant string, n int64) {
	m.Pool.Give(tenant, n)
	m.gauge(-n)
}

// Refuse returns why a request that already has `held` bytes does not get n more.
func (m *Memory) Refuse(held, n int64) *Problem {
	p := Refuse(http.StatusTooManyRequests, ReasonMemory, "the tenant's requests under way hold as much memory of this process as they may: send fewer, or smaller ones, at a time")
	p.Limit, p.Retry = "memory", time.Second
	switch {
	case held+n > m.Alone():
		p = Refuse(http.StatusUnprocessableEntity, ReasonMemory,
			"the request takes more than the %d bytes of memory that one tenant may have here: ask for less, or have the operator raise --memory", m.Alone())
		p.Limit = "memory"
	case m.Limit()-m.Held() < n: // all tenants together
		p.Status, p.Detail = http.StatusServiceUnavailable, "requests under way hold as much memory of this process as they may: try again"
	}
	return p
}

// Claim returns an empty claim of a tenant. It acquires at least step bytes at a time, so that many small parts do not
// each lock the pool.
func (m *Memory) Claim(tenant string, step int64) *Claim {
	return &Claim{memory: m, tenant: tenant, step: step}
}

// Claim counts the memory of one request. It is safe for concurrent use.
type Claim struct {
	memory *Memory
	tenant string
	step   int64

	mu          sync.Mutex
	used, taken int64
}

// Take acquires n more bytes; call it before using them. The error is a *Problem with ReasonMemory.
func (c *Claim) Take(n int64) error { return c.take(n, false) }

// Begin is Take for new work: it does not wait, and it leaves Memory.Leave bytes of the tenant's share for existing
// claims.
func (c *Claim) Begin(n int64) error { return c.take(n, true) }

func (c *Claim) take(n int64, begins bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if more := c.used + n - c.taken; more > 0 {
		more = max(more, c.step)
		if c.used+n > c.memory.Alone() || !c.more(more, begins || c.taken == 0) {
			return c.memory.Refuse(c.used, n)
		}
		c.taken += more
	}
	c.used += n
	return nil
}

func (c *Claim) more(n int64, begins bool) bool {
	m := c.memory
	switch {
	case begins && m.TakeLeaving(c.tenant, n, m.Leave):
		m.gauge(n)
		return true
	case begins:
		return false
	case m.Try(c.tenant, n):
		return true
	case m.Wait == 0:
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), m.Wait)
	defer cancel()
	return m.Acquire(ctx, c.tenant, n) == nil
}

// Give releases n bytes.
func (c *Claim) Give(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used -= n
	c.shrink()
}

// shrink releases unused bytes of at least one step.
func (c *Claim) shrink() {
	if over := c.taken - c.used; over > 0 && over >= c.step {
		c.taken -= over
		c.memory.Release(c.tenant, over)
	}
}

// Close releases all bytes. The claim can be used again.
func (c *Claim) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memory.Release(c.tenant, c.taken)
	c.used, c.taken = 0, 0
}
