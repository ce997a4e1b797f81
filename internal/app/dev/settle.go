package dev

import (
	"context"
	"time"

	"github.com/skeinhq/skein/pkg/kafka"
)

const (
	// settlePoll is the interval of reading the index's position.
	settlePoll = 20 * time.Millisecond
	// settleFor bounds the wait. An open run holds the index's position at its first event that no record covers.
	settleFor = 5 * time.Second
)

// Settle waits until the index has reached the current end of skein.events, including events that the proxy still publishes
// from ended streams. Then a run that is not in the index does not exist. Settle gives up after settleFor without an error.
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
