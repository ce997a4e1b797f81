package dev

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

const (
	// settlePoll is the interval of reading the index's position.
	settlePoll = 20 * time.Millisecond
	// settleFor bounds the wait: an open run keeps the position at its first event that no record covers.
	settleFor = 5 * time.Second
)

// Settle waits, for up to settleFor, until the index has reached the current end of skein.events, including events of ended
// streams that the proxy still publishes. After that, a run that is not in the index does not exist.
func (s *Server) Settle(ctx context.Context) error {
	deadline := time.After(settleFor)
	var ends map[int32]int64
	for {
		settled := false
		var err error
		switch {
		case s.ingest.Runs().Publishing() > 0:
		case ends == nil:
			ends, err = s.ends(ctx)
		default:
			settled, err = s.indexed(ctx, ends)
		}
		if err != nil || settled {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return nil
		case <-time.After(settlePoll):
		}
	}
}

// indexed reports whether the index has reached the ends of skein.events.
func (s *Server) indexed(ctx context.Context, ends map[int32]int64) (bool, error) {
	to, err := s.store.IndexedTo(ctx, Tenant)
	for partition, end := range ends {
		if to[partition] < end {
			return false, err
		}
	}
	return true, err
}

// ends returns the end of each partition of skein.events.
func (s *Server) ends(ctx context.Context) (map[int32]int64, error) {
	topic := s.kafka.Topics().Events
	list, err := s.adm.ListEndOffsets(ctx, topic)
	if err == nil {
		err = list.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("reading end of %s: %w", topic, err)
	}
	ends := make(map[int32]int64)
	list.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
	return ends, nil
}
