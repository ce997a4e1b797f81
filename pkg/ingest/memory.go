package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// tenantShare bounds a tenant: it may hold so many times what it leaves free. One tenant alone gets three quarters of a budget, two
	// get three sevenths each, and however many there are, something stays free for the next (the dynamic thresholds of
	// Choudhury and Hahne, 1998).
	tenantShare = 3
	// memoryWait is how long a body waits for memory to go on with an event that has begun.
	memoryWait = 2 * time.Second
	// requestBase is what a request takes beside its buffers: net/http's own, goroutines and headers.
	requestBase = 12 << 10
	// runBase is what a proxied run takes beside its input and events: two connections with their buffers, and three goroutines.
	runBase = 64 << 10
	// inflateGzip is what gzip takes to decompress: its window and tables. A decoder of zstd takes inflateZstd beside its window.
	inflateGzip, inflateZstd = 48 << 10, 512 << 10
)

// inputShare is the part of the proxy's memory that inputs have: one in so many. Callers send them as slowly as they like, and
// agents take as long to answer: so they have a budget of their own, and cost no run under way its events.
const inputShare = 4

// runShare is the part of the proxy's memory that one run may have for what Kafka has not acknowledged: one in so many.
const runShare = 4

// split divides the proxy's memory. A tenant's share of the inputs' part has room for the largest one.
func (c Config) split() (inputs, events int) {
	inputs = max(c.ProxyMemory/inputShare, (c.MaxEventBytes+lineSlack+1)*(tenantShare+1)/tenantShare+tenantShare)
	return inputs, c.ProxyMemory - inputs
}

// budget is an amount of something, bytes mostly, of which each tenant gets a share. It is taken before it is used.
type budget struct {
	total int
	gauge prometheus.Gauge // of what is used; may be nil

	mu      sync.Mutex
	used    int
	tenants map[string]*use // that hold or wait for something
	waiting int             // tenants whose turn it is
	moved   chan struct{}   // closed when something was released, while tenants wait
}

// use is what one tenant has of a budget.
type use struct {
	held    int
	waiting int
	turn    chan struct{} // holds the turn of those that wait: they get what they want in the order they came
}

func newBudget(total int, gauge prometheus.Gauge) *budget {
	return &budget{total: total, gauge: gauge, tenants: map[string]*use{}, moved: make(chan struct{})}
}

// most is what a tenant may hold while no other one holds anything.
func (b *budget) most() int { return b.total / (tenantShare + 1) * tenantShare }

// try takes n, or nothing where the tenant's share does not have it.
func (b *budget) try(tenant string, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.tenants[tenant]
	if u != nil && u.waiting > 0 {
		return false
	}
	return b.take(tenant, u, n)
}

// take is try under the lock, past those that wait.
func (b *budget) take(tenant string, u *use, n int) bool {
	held := n
	if u != nil {
		held += u.held
	}
	if held > tenantShare*(b.total-b.used-n) {
		return false
	}
	if u == nil {
		u = &use{turn: make(chan struct{}, 1)}
		b.tenants[tenant] = u
	}
	u.held = held
	b.used += n
	if b.gauge != nil {
		b.gauge.Add(float64(n))
	}
	return true
}

var (
	// errShare says that a tenant holds as much as it may, errFull that all tenants together do.
	errShare = errors.New("the tenant's requests under way hold as much of this process as they may: send fewer, or smaller ones, at a time")
	errFull  = fmt.Errorf("%w: requests under way hold as much of this process as they may", ErrUnavailable)
)

// acquire takes n, and waits for it until ctx ends. The error is errShare or errFull.
func (b *budget) acquire(ctx context.Context, tenant string, n int) error {
	if b.try(tenant, n) {
		return nil
	}
	b.mu.Lock()
	u := b.tenants[tenant]
	if u == nil {
		u = &use{turn: make(chan struct{}, 1)}
		b.tenants[tenant] = u
	}
	u.waiting++
	b.mu.Unlock()
	err := b.wait(ctx, tenant, u, n)
	b.mu.Lock()
	defer b.mu.Unlock()
	u.waiting--
	if err != nil {
		err = b.blame(u)
	}
	b.forget(tenant, u)
	return err
}

// wait takes n when its turn has come.
func (b *budget) wait(ctx context.Context, tenant string, u *use, n int) error {
	select {
	case u.turn <- struct{}{}:
	case <-ctx.Done():
		return errShare
	}
	b.mu.Lock()
	b.waiting++
	defer func() {
		b.waiting--
		b.mu.Unlock()
		<-u.turn
	}()
	for !b.take(tenant, u, n) {
		moved := b.moved
		b.mu.Unlock()
		select {
		case <-moved:
			b.mu.Lock()
		case <-ctx.Done():
			b.mu.Lock()
			return errShare
		}
	}
	return nil
}

// why says why try has taken nothing: errShare or errFull.
func (b *budget) why(tenant string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.blame(b.tenants[tenant])
}

func (b *budget) blame(u *use) error {
	if u == nil || u.held <= b.total/(tenantShare+1) {
		return errFull
	}
	return errShare
}

// release gives n back.
func (b *budget) release(tenant string, n int) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.tenants[tenant]
	u.held -= n
	b.used -= n
	if b.gauge != nil {
		b.gauge.Sub(float64(n))
	}
	b.forget(tenant, u)
	if b.waiting > 0 {
		close(b.moved)
		b.moved = make(chan struct{})
	}
}

func (b *budget) forget(tenant string, u *use) {
	if u.held == 0 && u.waiting == 0 {
		delete(b.tenants, tenant)
	}
}

// claim is what one request holds of a budget.
type claim struct {
	of     *budget
	tenant string
	n      int
}

// take takes n bytes more, and waits a moment for them.
func (h *claim) take(n int) *rejection {
	if n <= 0 {
		h.give(-n)
		return nil
	}
	if !h.of.try(h.tenant, n) {
		ctx, cancel := context.WithTimeout(context.Background(), memoryWait)
		defer cancel()
		if err := h.of.acquire(ctx, h.tenant, n); err != nil {
			return noMemory(err, "request_memory")
		}
	}
	h.n += n
	return nil
}

// give gives n bytes back.
func (h *claim) give(n int) {
	h.n -= n
	h.of.release(h.tenant, n)
}

// close gives all back.
func (h *claim) close() { h.give(h.n) }

// noMemory is the refusal of what there is no memory for, of the limit of that name.
func noMemory(err error, limit string) *rejection {
	if errors.Is(err, errFull) {
		return reject(http.StatusServiceUnavailable, reasonUnavailable, 0, "%v", err).retryIn(time.Second)
	}
	rej := reject(http.StatusTooManyRequests, reasonMemory, 0, "%v", err).retryIn(time.Second)
	rej.limit = limit
	return rej
}

// grown is bytes that come in pieces. It counts its room before it is made.
type grown struct {
	claim *claim
	b     []byte
}

// leastRoom is the first room of a grown.
const leastRoom = 4 << 10

// add appends bytes.
func (g *grown) add(more []byte) *rejection {
	need := len(g.b) + len(more)
	if need > cap(g.b) {
		old := cap(g.b)
		size := max(2*old, need, leastRoom)
		if rej := g.claim.take(size); rej != nil {
			return rej
		}
		g.b = append(make([]byte, 0, size), g.b...)
		g.claim.give(old)
	}
	g.b = append(g.b, more...)
	return nil
}

// reset drops the bytes. Small room stays.
func (g *grown) reset() {
	g.b = g.b[:0]
	if cap(g.b) > keptRoom { // one large event must not cost its size for the rest of the stream
		g.claim.give(cap(g.b))
		g.b = nil
	}
}

// keptRoom is the most room that a grown keeps for the next event.
const keptRoom = 64 << 10

// own returns the bytes as a value which nobody else holds, and what it counts in the claim. Much is not copied.
func (g *grown) own() (value []byte, held int) {
	if len(g.b) < keptRoom {
		return bytes.Clone(g.b), 0
	}
	return g.hand()
}

// hand hands the bytes over, with what they count in the claim.
func (g *grown) hand() (b []byte, held int) {
	b, held = g.b, cap(g.b)
	g.b = nil
	return b, held
}
