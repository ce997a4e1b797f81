package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/share"
)

const (
	// tenantShare bounds a tenant: it may hold so many times what it leaves free. One tenant alone gets three quarters of a budget, two
	// get three sevenths each, and however many there are, something stays free for the next.
	tenantShare = 3
	// memoryWait is how long a body waits for memory to go on with an event that has begun.
	memoryWait = 2 * time.Second
	// beginShare is the part of the memory that what begins leaves its tenant for what goes on: one in so many.
	beginShare = 8
	// requestBase is what a request takes beside its buffers: net/http's own, goroutines and usual headers.
	requestBase = 12 << 10
	// runBase is what a proxied run takes beside its input and events: two connections with their buffers, and three goroutines.
	runBase = 64 << 10
	// inflateGzip is what gzip takes to decompress: its window and tables. A decoder of zstd takes inflateZstd beside its window.
	inflateGzip, inflateZstd = 48 << 10, 512 << 10
)

// runShare is the part of the memory that one run may have for what Kafka has not acknowledged: one in so many.
const runShare = 8

// budget is the memory of the process, in bytes, of which each tenant gets a share. It is taken before it is used.
type budget struct {
	*share.Pool
	gauge prometheus.Gauge // of what is used; may be nil
}

func newBudget(total int, gauge prometheus.Gauge) *budget {
	return &budget{Pool: share.NewPoolOf(int64(total), tenantShare), gauge: gauge}
}

func (b *budget) count(n int) {
	if b.gauge != nil {
		b.gauge.Add(float64(n))
	}
}

// try takes n, or nothing where the tenant's share does not have it.
func (b *budget) try(tenant string, n int) bool {
	ok := b.Take(tenant, int64(n))
	if ok {
		b.count(n)
	}
	return ok
}

// begin is try for what begins.
func (b *budget) begin(tenant string, n int) *rejection {
	if !b.TakeLeaving(tenant, int64(n), b.Limit()/beginShare) {
		return noMemory(b.why(tenant))
	}
	b.count(n)
	return nil
}

var (
	// errShare says that a tenant holds as much as it may, errFull that all tenants together do.
	errShare = errors.New("the tenant's requests under way hold as much of this process as they may: send fewer, or smaller ones, at a time")
	errFull  = fmt.Errorf("%w: requests under way hold as much of this process as they may", ErrUnavailable)
)

// acquire takes n, and waits for it until ctx ends. The error is errShare or errFull.
func (b *budget) acquire(ctx context.Context, tenant string, n int) error {
	if b.Wait(ctx, tenant, int64(n)) != nil {
		return b.why(tenant)
	}
	b.count(n)
	return nil
}

// why says why try has taken nothing: errShare or errFull.
func (b *budget) why(tenant string) error {
	if b.HeldBy(tenant) <= b.Limit()/(tenantShare+1) {
		return errFull
	}
	return errShare
}

// release gives n back.
func (b *budget) release(tenant string, n int) {
	b.Give(tenant, int64(n))
	b.count(-n)
}

// claim is what one request holds of the memory.
type claim struct {
	of     *budget
	tenant string
	n      int
}

// take takes n bytes more. A request that holds some waits a moment for them.
func (h *claim) take(n int) *rejection {
	switch {
	case n <= 0:
		h.give(-n)
		return nil
	case h.n == 0:
		if rej := h.of.begin(h.tenant, n); rej != nil {
			return rej
		}
	case !h.of.try(h.tenant, n):
		ctx, cancel := context.WithTimeout(context.Background(), memoryWait)
		defer cancel()
		if err := h.of.acquire(ctx, h.tenant, n); err != nil {
			return noMemory(err)
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

// noMemory is the refusal of what there is no memory for.
func noMemory(err error) *rejection {
	if errors.Is(err, errFull) {
		return reject(http.StatusServiceUnavailable, reasonUnavailable, 0, "%v", err).retryIn(time.Second)
	}
	rej := reject(http.StatusTooManyRequests, reasonMemory, 0, "%v", err).retryIn(time.Second)
	rej.limit = "memory"
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

// own returns the bytes as a value that no other code refers to, and its size in the claim. It does not copy large values.
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
