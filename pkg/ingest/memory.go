package ingest

import (
	"time"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/internal/share"
)

const (
	// tenantShare limits a tenant to this many times the free memory. A single tenant can use three quarters of a budget,
	// two tenants three sevenths each. With any number of tenants, some memory stays free for the next one.
	tenantShare = 3
	// memoryWait is how long a body waits for memory in the middle of an event.
	memoryWait = 2 * time.Second
	// beginShare reserves 1/beginShare of the memory for work in progress: new work of the same tenant cannot use it.
	beginShare = 8
	// requestBase is the memory of a request besides its buffers: net/http, goroutines and usual headers.
	requestBase = 12 << 10
	// runBase is the memory of a proxied run besides its input and events: two connections with buffers, and three
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
