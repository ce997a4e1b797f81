package share

import (
	"container/list"
	"context"
	"math"
	"slices"
	"sync"
)

// Pool is a bounded amount that tenants share. A tenant may hold as much as is left free beside it: alone half of the pool, beside one
// other a third each, and so on. So there is always room for a tenant that comes, without a number of tenants to be set. One unit is
// for everybody, as long as there is one.
//
// A Pool is safe for concurrent use. What a call costs grows with the number of tenants, and with that of waiters only where it serves
// them.
type Pool struct {
	limit int64
	times int64 // a tenant may hold so many times what is left free

	mu      sync.Mutex
	held    int64
	tenants map[string]int64
	waiting map[string]*list.List // of *Place: each tenant's waiters in the order of their coming; none is empty
	heads   []*Place              // the first waiter of each tenant, in the order of their coming
	came    int64                 // waiters so far
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
	number int64         // in the order of coming
	queued *list.Element // in the tenant's list
}

// NewPool returns a pool of an amount.
func NewPool(limit int64) *Pool { return NewPoolOf(limit, 1) }

// NewPoolOf returns a pool of which a tenant may hold so many times what is left free: alone times/(times+1) of it.
func NewPoolOf(limit, times int64) *Pool {
	return &Pool{limit: limit, times: times, tenants: map[string]int64{}, waiting: map[string]*list.List{}, served: map[string]int64{}}
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

// TakeLeaving is Take that leaves the tenant's share room for rest more: what begins must not take what goes on needs.
func (p *Pool) TakeLeaving(tenant string, n, rest int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fits(tenant, n+rest) && p.take(tenant, n)
}

// take takes n where the share allows it and that overtakes no waiter that comes first.
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

// Wait is Take that waits until the share allows it. A tenant's waiters are served in the order in which they came. Those of other tenants,
// and Take, overtake the first of them only if their tenant holds less, with what it asks for, than the waiter's would: so many small
// requests cannot keep a large one out. Where several can be served, the tenant comes first that was served longest ago.
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
	p.came++
	w := &Place{pool: p, tenant: tenant, n: n, ready: make(chan struct{}), number: p.came}
	queue := p.waiting[tenant]
	if queue == nil {
		queue = list.New()
		p.waiting[tenant] = queue
		p.heads = append(p.heads, w)
	}
	w.queued = queue.PushBack(w)
	return w
}

// leave takes a waiter away. The next one of its tenant follows.
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

// Ready is closed once the caller has what it waits for. It then returns that with Give.
func (w *Place) Ready() <-chan struct{} { return w.ready }

// Leave gives the place up, and returns what it has just got. Call it once.
func (w *Place) Leave() {
	p := w.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-w.ready:
		p.give(w.tenant, w.n)
	default:
		p.leave(w)
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

// first returns the waiter that is to be served first; nil where none can be.
func (p *Pool) first() *Place {
	var first *Place
	least := int64(math.MaxInt64) // of those that cannot be
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
