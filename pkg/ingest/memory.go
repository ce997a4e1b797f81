package ingest

import (
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
