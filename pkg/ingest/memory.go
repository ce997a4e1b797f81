package ingest

import (
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
)

// runShare is the part of the proxy's memory that one run may have for what Kafka has not acknowledged: one in so many.
const runShare = 4

// inputShare is the part of the proxy's memory that inputs have: one in so many. Callers send them as slowly as they like, and
// agents take as long to answer: so they have a budget of their own, and cost no run under way its events.
const inputShare = 4

// split divides the proxy's memory. Inputs have room for the largest one at least.
func (c Config) split() (inputs, events int) {
	inputs = max(c.ProxyMemory/inputShare, c.MaxEventBytes+lineSlack+1)
	return inputs, c.ProxyMemory - inputs
}

// memory is what all proxied runs together hold of one kind, inputs or events. Nobody waits for it: a run that waited
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
