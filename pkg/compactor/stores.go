package compactor

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// stores are the local stores of one process, and the histories that it keeps beside them. A store is opened with its partition's first
// assignment and stays open: a partition that comes back finds it a little behind. Each store is
// used by one goroutine at a time: the catch-up, then the actor.
type stores struct {
	disk    *disk
	logger  *slog.Logger
	metrics *Metrics
	cache   *pebble.Cache
	// histories are of all partitions.
	histories *histories

	mu   sync.Mutex
	open map[int32]*localStore
}

func newStores(disk *disk, cacheBytes int, logger *slog.Logger, metrics *Metrics) *stores {
	return &stores{
		disk: disk, logger: logger, metrics: metrics, cache: pebble.NewCache(32 << 20), histories: newHistories(cacheBytes),
		open: map[int32]*localStore{},
	}
}

func (s *stores) get(partition int32) (*localStore, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.open[partition]; st != nil {
		return st, nil
	}
	st, rebuilt, err := openStore(s.disk, partition, s.cache)
	if err != nil {
		return nil, err
	}
	if rebuilt != "" {
		s.metrics.Rebuilds.WithLabelValues(rebuilt).Inc()
		s.logger.Warn("local store was made anew", "partition", partition, "reason", rebuilt)
	}
	s.open[partition] = st
	return st, nil
}

func (s *stores) close() error {
	var errs []error
	for _, st := range s.open {
		errs = append(errs, st.close())
	}
	s.cache.Unref()
	return errors.Join(errs...)
}
