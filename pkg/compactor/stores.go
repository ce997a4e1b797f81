package compactor

import (
	"context"
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
	// turns are taken by catch-ups, in the order in which they ask.
	turns chan struct{}

	mu   sync.Mutex
	open map[int32]*localStore
}

// mostTurns is how many catch-ups of a process read and write at a time. What one has in hand is in memory, unpacked
// and as a batch for its store; the others wait with nothing, or with the one answer that came when their turn was over.
const mostTurns = 4

func newStores(disk *disk, cacheBytes int, logger *slog.Logger, metrics *Metrics) *stores {
	return &stores{
		disk: disk, logger: logger, metrics: metrics, cache: pebble.NewCache(32 << 20), histories: newHistories(cacheBytes),
		turns: make(chan struct{}, mostTurns), open: map[int32]*localStore{},
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

// turn waits for a turn, and returns what gives it back. A turn is for one portion: who has little to read waits for
// one of each of the others, and not until they are done.
func (s *stores) turn(ctx context.Context) (done func(), err error) {
	select {
	case s.turns <- struct{}{}:
		return func() { <-s.turns }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *stores) close() error {
	var errs []error
	for _, st := range s.open {
		errs = append(errs, st.close())
	}
	s.cache.Unref()
	return errors.Join(errs...)
}
