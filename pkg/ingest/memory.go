package ingest

import (
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
)

// runShare is the part of the proxy's memory that one run may have for what Kafka has not acknowledged: one in so many.
const runShare = 4

// memory is what all proxied runs together hold of inputs and events. Nobody waits for it: a run that waited
// would make its caller wait.
type memory struct {
	left *semaphore.Weighted
	used prometheus.Gauge
}

func newMemory(bytes int, used prometheus.Gauge) *memory {
	return &memory{left: semaphore.NewWeighted(int64(bytes)), used: used}
}

// acquire takes n bytes, or nothing where there are not as many.
func (m *memory) acquire(n int) bool {
	if !m.left.TryAcquire(int64(n)) {
		return false
	}
	m.used.Add(float64(n))
	return true
}

func (m *memory) release(n int) {
	m.left.Release(int64(n))
	m.used.Sub(float64(n))
}
