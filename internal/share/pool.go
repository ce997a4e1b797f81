// Package share divides what a process has of something, such as slots or bytes of memory, among tenants.
package share

import (
	"context"
	"math"
	"slices"
	"sync"
)

// Pool is a bounded amount that tenants share. A tenant may hold as much as is left free beside it: alone half of the pool, beside one
// other a third each, and so on. So there is always room for a tenant that comes, without a number of tenants to be set. One unit is
// for everybody, as long as there is one.
//
// A Pool is safe for concurrent use.
type Pool struct {
	limit int64
	times int64 // a tenant may hold so many times what is left free

	mu      sync.Mutex
	held    int64
	tenants map[string]int64
	waiting []*Place // in the order of their coming
	// served is, while any wait, the number of the service at which each tenant was last served as a waiter.
	served   map[string]int64
	services int64
}

// Place is that of a caller that waits for a part of a pool.
type Place struct {
	pool   *Pool
	tenant string
	n      int64
	ready  chan struct{}
}

// NewPool returns a pool of an amount.
func NewPool(limit int64) *Pool { return NewPoolOf(limit, 1) }

// NewPoolOf returns a pool of which a tenant may hold so many times what is left free: alone times/(times+1) of it.
func NewPoolOf(limit, times int64) *Pool {
	return &Pool{limit: limit, times: times, tenants: map[string]int64{}, served: map[string]int64{}}
}

// Limit is the whole amount.
func (p *Pool) Limit() int64 { return p.limit }

// Alone is how much a tenant may hold that nobody else takes anything beside.
func (p *Pool) Alone() int64 { return max(1, p.limit/(p.times+1)*p.times) }

// Held is how much all tenants hold.
func (p *Pool) Held() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// HeldBy is how much a tenant holds.
func (p *Pool) HeldBy(tenant string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tenants[tenant]
}

// Take takes n for a tenant where its share allows that. Return it with Give.
func (p *Pool) Take(tenant string, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.take(tenant, n)
}

// take takes n where the share allows it and that overtakes no waiter that comes first.
func (p *Pool) take(tenant string, n int64) bool {
	if !p.fits(tenant, n) {
		return false
	}
	for _, w := range p.waiting {
		if w.tenant == tenant || p.tenants[w.tenant]+w.n <= p.tenants[tenant]+n {
			return false
		}
	}
	p.add(tenant, n)
	return true
}

func (p *Pool) fits(tenant string, n int64) bool {
	free := p.limit - p.held - n
	return free >= 0 && p.tenants[tenant]+n <= max(1, p.times*free)
}

// Wait is Take that waits until the share allows it. A tenant's waiters are served in the order in which they came. Those of other tenants, and
// Take, overtake them only if their tenant holds less, with what it asks for, than the waiter's would: so many small requests cannot keep a
// large one out. Where several can be served, the tenant comes first that was served longest ago.
func (p *Pool) Wait(ctx context.Context, tenant string, n int64) error {
	p.mu.Lock()
	if p.take(tenant, n) {
		p.mu.Unlock()
		return nil
	}
	w := p.enter(tenant, n)
	p.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		w.Leave()
		return context.Cause(ctx)
	}
}

// Queue is Wait for a caller that does other things while it waits: it returns the caller's place among the waiters.
func (p *Pool) Queue(tenant string, n int64) *Place {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.take(tenant, n) {
		w := &Place{pool: p, tenant: tenant, n: n, ready: make(chan struct{})}
		close(w.ready)
		return w
	}
	return p.enter(tenant, n)
}

func (p *Pool) enter(tenant string, n int64) *Place {
	w := &Place{pool: p, tenant: tenant, n: n, ready: make(chan struct{})}
	p.waiting = append(p.waiting, w)
	return w
}

// Ready is closed once the caller has what it waits for. It then returns that with Give.
func (w *Place) Ready() <-chan struct{} { return w.ready }

// Leave gives the place up, and returns what it has just got.
func (w *Place) Leave() {
	p := w.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-w.ready:
		p.give(w.tenant, w.n)
	default:
		p.waiting = slices.DeleteFunc(p.waiting, func(other *Place) bool { return other == w })
		p.serve() // those that it came before
	}
}

// Add takes n, which may be negative, whether there is room or not: the holder then gives up what Over says.
func (p *Pool) Add(tenant string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.give(tenant, -n)
}

// Over is how much is held above the limit.
func (p *Pool) Over() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, p.held-p.limit)
}

// Heaviest returns the tenants that hold most: one, or several that hold as much; none where no tenant holds anything.
func (p *Pool) Heaviest() (tenants []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := int64(0)
	for tenant, n := range p.tenants {
		if n > most {
			most, tenants = n, tenants[:0]
		}
		if n == most {
			tenants = append(tenants, tenant)
		}
	}
	return tenants
}

// Give returns what a tenant has taken.
func (p *Pool) Give(tenant string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.give(tenant, n)
}

func (p *Pool) give(tenant string, n int64) {
	p.add(tenant, -n)
	p.serve()
}

// serve gives to waiters what is free, by the rule of Wait.
func (p *Pool) serve() {
	for len(p.waiting) > 0 {
		at := p.first()
		if at < 0 {
			return
		}
		w := p.waiting[at]
		p.waiting = slices.Delete(p.waiting, at, at+1)
		p.add(w.tenant, w.n)
		p.services++
		p.served[w.tenant] = p.services
		close(w.ready)
	}
	clear(p.served)
}

// first returns which of the waiters is to be served first; -1 where none can be.
func (p *Pool) first() int {
	first := -1
	least := int64(math.MaxInt64) // of those that cannot be
	can := map[string]bool{}      // the first waiter of each tenant
	for i, w := range p.waiting {
		with := p.tenants[w.tenant] + w.n
		switch ready, later := can[w.tenant]; {
		case ready: // another one of it comes behind that
		case !later && with < least && p.fits(w.tenant, w.n):
			can[w.tenant] = true
			if first < 0 || p.served[w.tenant] < p.served[p.waiting[first].tenant] {
				first = i
			}
		default:
			can[w.tenant], least = false, min(least, with)
		}
	}
	return first
}

func (p *Pool) add(tenant string, n int64) {
	p.held += n
	if p.tenants[tenant] += n; p.tenants[tenant] == 0 {
		delete(p.tenants, tenant)
	}
}
