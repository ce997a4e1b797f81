package ingest

import (
	"bytes"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/front"
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

// newMemory returns the memory of the process, of which the gauge shows what is used.
func newMemory(total int, gauge prometheus.Gauge) *front.Memory {
	limit := int64(total)
	return &front.Memory{Pool: share.NewPoolOf(limit, tenantShare), Gauge: gauge, Leave: limit / beginShare, Wait: memoryWait}
}

// grown is bytes that come in pieces. It counts its room before it is made.
type grown struct {
	claim *front.Claim
	b     []byte
}

// leastRoom is the first room of a grown.
const leastRoom = 4 << 10

// add appends bytes.
func (g *grown) add(more []byte) error {
	need := len(g.b) + len(more)
	if need > cap(g.b) {
		old := cap(g.b)
		size := max(2*old, need, leastRoom)
		if err := g.claim.Take(int64(size)); err != nil {
			return err
		}
		g.b = append(make([]byte, 0, size), g.b...)
		g.claim.Give(int64(old))
	}
	g.b = append(g.b, more...)
	return nil
}

// reset drops the bytes. Small room stays.
func (g *grown) reset() {
	g.b = g.b[:0]
	if cap(g.b) > keptRoom { // one large event must not cost its size for the rest of the stream
		g.claim.Give(int64(cap(g.b)))
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
