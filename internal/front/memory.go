package front

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/skeinhq/skein/internal/share"
)

// Memory is a stage's memory budget in bytes, which tenants share by the rule of share.Pool. Callers acquire bytes
// before they use them.
type Memory struct {
	*share.Pool
	// Leave is how many bytes of a tenant's share its new claims must leave to its existing claims. Patience is how long
	// an existing claim waits for bytes.
	Leave    int64
	Patience time.Duration
}

// Refuse returns the problem of a request that already has held bytes and cannot get n more.
func (m *Memory) Refuse(held, n int64) *Problem {
	p := Refuse(http.StatusTooManyRequests, ReasonMemory, "the tenant's requests under way hold as much memory of this process as they may: send fewer, or smaller ones, at a time")
	p.Limit, p.Retry = "memory", time.Second
	switch {
	case held+n > m.Alone():
		p = Refuse(http.StatusUnprocessableEntity, ReasonMemory,
			"the request takes more than the %d bytes of memory that one tenant may have here: ask for less, or have the operator raise --memory", m.Alone())
		p.Limit = "memory"
	case m.Limit()-m.Held() < n: // all tenants together use too much
		p.Status, p.Detail = http.StatusServiceUnavailable, "requests under way hold as much memory of this process as they may: try again"
	}
	return p
}

// Claim returns an empty claim of a tenant. The claim acquires at least step bytes at a time, so that it does not lock
// the pool for each of many small parts.
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

// Take acquires n more bytes; call it before using them. The first call of an empty claim does not wait, and it leaves
// Memory.Leave bytes of the tenant's share for other claims. The error is a *Problem with ReasonMemory.
func (c *Claim) Take(n int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if more := c.used + n - c.taken; more > 0 {
		more = max(more, c.step)
		if c.used+n > c.memory.Alone() || !c.more(more) {
			return c.memory.Refuse(c.used, n)
		}
		c.taken += more
	}
	c.used += n
	return nil
}

func (c *Claim) more(n int64) bool {
	m := c.memory
	if c.taken == 0 {
		return m.TakeLeaving(c.tenant, n, m.Leave)
	}
	if m.Take(c.tenant, n) {
		return true
	}
	if m.Patience == 0 { // do not wait: a waiter keeps others out
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), m.Patience)
	defer cancel()
	return m.Wait(ctx, c.tenant, n) == nil
}

// Give releases n bytes. The claim keeps less than one step of released bytes for later calls of Take.
func (c *Claim) Give(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used -= n
	if over := c.taken - c.used; over > 0 && over >= c.step {
		c.taken -= over
		c.memory.Give(c.tenant, over)
	}
}

// Close releases all bytes. The claim can be used again.
func (c *Claim) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memory.Give(c.tenant, c.taken)
	c.used, c.taken = 0, 0
}
