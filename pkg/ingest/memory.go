package ingest

import (
	"time"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/internal/share"
)

const (
	// tenantShare limits a tenant to this many times the free memory. A single tenant can use three quarters of the
	// memory, two tenants three sevenths each. Some memory stays free for the next tenant, whatever their number.
	tenantShare = 3
	// memoryWait is how long a request that already has memory waits for more.
	memoryWait = 2 * time.Second
	// beginShare reserves 1/beginShare of the memory for a tenant's work in progress; the tenant's new work cannot use it.
	beginShare = 8
	// requestBase is the memory of a request besides its buffers, for net/http, goroutines and usual headers.
	requestBase = 12 << 10
	// runBase is the memory of a proxied run besides its input and events, for two connections with buffers, and three
	// goroutines.
	runBase = 64 << 10
	// inflateGzip is the memory of a gzip decoder (window and tables); inflateZstd that of a zstd decoder besides its
	// window.
	inflateGzip, inflateZstd = 48 << 10, 512 << 10
)

// runShare limits a run's unacknowledged bytes to 1/runShare of the memory.
const runShare = 8

// newMemory returns the memory budget of the process.
func newMemory(total int) *front.Memory {
	limit := int64(total)
	return &front.Memory{Pool: share.NewPoolOf(limit, tenantShare), Leave: limit / beginShare, Patience: memoryWait}
}
