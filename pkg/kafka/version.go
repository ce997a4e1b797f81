package kafka

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/record"
)

// CheckVersion returns record.ErrUnknownVersion with the position if a newer Skein wrote the record. No stage may read past such a
// record.
func CheckVersion(m *kgo.Record) error {
	if err := record.CheckVersion(m.Headers); err != nil {
		return fmt.Errorf("reading %s/%d at offset %d: %w", m.Topic, m.Partition, m.Offset, err)
	}
	return nil
}

// VersionStops contains the partitions that a stage stopped reading because a newer Skein wrote the next record (CheckVersion). It
// is safe for concurrent use.
type VersionStops struct {
	mu    sync.Mutex
	stops map[int32]error
}

// Add adds a stopped partition and its error. It returns false if the partition was already stopped.
func (s *VersionStops) Add(partition int32, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stops[partition] != nil {
		return false
	}
	if s.stops == nil {
		s.stops = map[int32]error{}
	}
	s.stops[partition] = err
	return true
}

// Remove removes partitions, because they are reassigned.
func (s *VersionStops) Remove(partitions ...int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range partitions {
		delete(s.stops, p)
	}
}

// Has reports whether a partition has stopped.
func (s *VersionStops) Has(partition int32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stops[partition] != nil
}

// Check returns the error of the lowest stopped partition, with the number of others, or nil.
func (s *VersionStops) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.stops) == 0 {
		return nil
	}
	first := slices.Min(slices.Collect(maps.Keys(s.stops)))
	err := fmt.Errorf("%w; nothing behind it is read before this process is updated", s.stops[first])
	if more := len(s.stops) - 1; more > 0 {
		err = fmt.Errorf("%w (and %d more partitions)", err, more)
	}
	return err
}

// Gauge returns a stage's metric of stopped partitions.
func (s *VersionStops) Gauge(stage string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "skein_" + stage + "_unknown_version_partitions",
		Help: "Partitions that stopped at a record of a newer Skein, which this process cannot read.",
	}, func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(len(s.stops))
	})
}
