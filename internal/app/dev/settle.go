package dev

import (
	"context"
	"time"

	"github.com/skeinhq/skein/pkg/kafka"
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
	var events map[int32]kafka.Span
	for {
		settled := false
		var err error
		switch {
		case s.ingest.Runs().Publishing() > 0:
		case events == nil:
			events, err = kafka.Spans(ctx, s.adm, s.kafka.Topics().Events)
		default:
			settled, err = s.indexed(ctx, events)
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
func (s *Server) indexed(ctx context.Context, events map[int32]kafka.Span) (bool, error) {
	to, err := s.store.IndexedTo(ctx, Tenant)
	for partition, span := range events {
		if to[partition] < span.End {
			return false, err
		}
	}
	return true, err
}
