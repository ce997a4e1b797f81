package share

import (
	"container/list"
	"context"
	"math"
	"slices"
	"sync"
)

// Pool is a limited amount that tenants share. A tenant may have as much as is free afterwards: a single tenant half of
// the pool, each of two tenants a third, and so on. Some of the pool thus stays free for a new tenant, without a
// configured number of tenants. A tenant that has nothing may always acquire one unit if that is free.
//
// A Pool is safe for concurrent use. The cost of a call grows with the number of tenants, and with the number of
// waiters that the call serves.
type Pool struct {
	limit int64
	times int64 // how many times the free amount a tenant may have

	mu      sync.Mutex
	held    int64
	tenants map[string]int64
	waiting map[string]*list.List // each tenant's *Place values in order of arrival; no list is empty
	heads   []*Place              // the first waiter of each tenant, in order of arrival
	came    int64                 // number of waiters so far
	// served maps each tenant to the value of services when one of its waiters was last served. It is cleared when no
	// caller waits.
	served   map[string]int64
	services int64
}

// Place is the place of a caller among those that wait for a part of a pool.
type Place struct {
	pool   *Pool
	tenant string
	n      int64
	ready  chan struct{}
	number int64         // in order of arrival
	queued *list.Element // element of the tenant's list
}

// NewPool returns a pool of size limit in which a tenant may have as much as then stays free: half of it while no other tenant has any.
func NewPool(limit int64) *Pool { return NewPoolOf(limit, 1) }

// NewPoolOf returns a pool in which a tenant may have a multiple of the free amount. The argument times is the factor:
// a single tenant may have times/(times+1) of the pool.
func NewPoolOf(limit, times int64) *Pool {
	return &Pool{limit: limit, times: times, tenants: map[string]int64{}, waiting: map[string]*list.List{}, served: map[string]int64{}}
}

// Limit returns the whole amount.
func (p *Pool) Limit() int64 { return p.limit }

// Alone returns the amount that a tenant may have while no other tenant has any.
func (p *Pool) Alone() int64 { return max(1, p.limit/(p.times+1)*p.times) }

// Held returns the amount that all tenants together have acquired.
func (p *Pool) Held() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// HeldBy returns the amount that a tenant has acquired.
func (p *Pool) HeldBy(tenant string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tenants[tenant]
}

// Take acquires n for a tenant and reports whether its share allows that. Call Give to release it.
func (p *Pool) Take(tenant string, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.take(tenant, n)
}

// TakeLeaving is Take if the tenant's share has room for n + rest, and otherwise returns false. New work thus leaves
// the amount rest to existing work.
func (p *Pool) TakeLeaving(tenant string, n, rest int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fits(tenant, n+rest) && p.take(tenant, n)
}

// take acquires n if the tenant's share allows it and no waiter has precedence.
func (p *Pool) take(tenant string, n int64) bool {
	if !p.fits(tenant, n) {
		return false
	}
	if p.waiting[tenant] != nil {
		return false
	}
	for _, w := range p.heads {
		if p.tenants[w.tenant]+w.n <= p.tenants[tenant]+n {
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

// Wait is Take, but waits until the tenant's share allows n. It serves a tenant's waiters in order of arrival. A caller
// of another tenant may overtake a tenant's first waiter only if the caller's tenant would then have less than the
// waiter's tenant would have with the waiter's amount. Many small requests thus cannot keep a large one out. If several
// waiters can be served, the tenant that was served longest ago is next.
func (p *Pool) Wait(ctx context.Context, tenant string, n int64) error {
	if p.Take(tenant, n) { // even if ctx has ended
		return nil
	}
	w := p.Queue(tenant, n)
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		w.Leave()
		return context.Cause(ctx)
	}
}

// Queue is Wait without blocking: it returns the caller's place among the waiters at once.
func (p *Pool) Queue(tenant string, n int64) *Place {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &Place{pool: p, tenant: tenant, n: n, ready: make(chan struct{})}
	if p.take(tenant, n) {
		close(w.ready)
		return w
	}
	p.came++
	w.number = p.came
	queue := p.waiting[tenant]
	if queue == nil {
		queue = list.New()
		p.waiting[tenant] = queue
		p.heads = append(p.heads, w)
	}
	w.queued = queue.PushBack(w)
	return w
}

// leave removes a waiter. If the waiter was in heads, the next one of its tenant replaces it there.
func (p *Pool) leave(w *Place) {
	queue := p.waiting[w.tenant]
	first := queue.Front() == w.queued
	queue.Remove(w.queued)
	if queue.Len() == 0 {
		delete(p.waiting, w.tenant)
	}
	if !first {
		return
	}
	byNumber := func(w *Place, number int64) int { return int(w.number - number) }
	at, _ := slices.BinarySearchFunc(p.heads, w.number, byNumber)
	p.heads = slices.Delete(p.heads, at, at+1)
	if next := queue.Front(); next != nil {
		head := next.Value.(*Place)
		at, _ = slices.BinarySearchFunc(p.heads, head.number, byNumber)
		p.heads = slices.Insert(p.heads, at, head)
	}
}

// Ready returns a channel that is closed when the caller has acquired its amount. Call Give to release the amount.
func (w *Place) Ready() <-chan struct{} { return w.ready }

// Leave removes the waiter from the queue, or releases the amount if it is already acquired. Call it at most once.
func (w *Place) Leave() {
	p := w.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-w.ready:
		p.give(w.tenant, w.n)
	default:
		p.leave(w)
		p.serve() // the waiters that this one blocked
	}
}

// Add acquires the amount n, which may be negative, even if there is no room. The caller must then release the amount
// that Over returns.
func (p *Pool) Add(tenant string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.give(tenant, -n)
}

// Over returns by how much the acquired amount exceeds the limit.
func (p *Pool) Over() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, p.held-p.limit)
}

// Heaviest returns the tenants with the largest amount: several if their amounts are equal, none if no tenant has any.
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

// Give releases the amount n of a tenant.
func (p *Pool) Give(tenant string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.give(tenant, n)
}

func (p *Pool) give(tenant string, n int64) {
	p.add(tenant, -n)
	p.serve()
}

// serve gives the free amount to waiters, by the rule of Wait.
func (p *Pool) serve() {
	for len(p.heads) > 0 {
		w := p.first()
		if w == nil {
			return
		}
		p.leave(w)
		p.add(w.tenant, w.n)
		p.services++
		p.served[w.tenant] = p.services
		close(w.ready)
	}
	clear(p.served)
}

// first returns the waiter to serve next; nil if none can be served.
func (p *Pool) first() *Place {
	var first *Place
	least := int64(math.MaxInt64) // smallest amount that a tenant would have after its waiter, over the waiters that cannot be served
	for _, w := range p.heads {
		with := p.tenants[w.tenant] + w.n
		switch {
		case with >= least || !p.fits(w.tenant, w.n):
			least = min(least, with)
		case first == nil || p.served[w.tenant] < p.served[first.tenant]:
			first = w
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
