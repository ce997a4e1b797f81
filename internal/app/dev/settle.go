package dev

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

const (
	// settlePoll is the pause between two looks at the index.
	settlePoll = 20 * time.Millisecond
	// settleFor bounds the wait: while a run is open, the index says that it got to the run's first
	// event that no record shows yet, and no further.
	settleFor = 5 * time.Second
)

// Settle waits until the index has got to the end of skein.events as it is now, with what the proxy still publishes of
// streams that are over, or for a few seconds. It tells a run that is not there from one that is not there yet.
func (s *Server) Settle(ctx context.Context) error {
	deadline := time.NewTimer(settleFor)
	defer deadline.Stop()
	poll := time.NewTicker(settlePoll)
	defer poll.Stop()
	for s.ingest.Runs().Publishing() > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return nil
		case <-poll.C:
		}
	}
	ends, err := s.ends(ctx)
	if err != nil {
		return err
	}
	for {
		to, err := s.store.IndexedTo(ctx, Tenant)
		if err != nil {
			return err
		}
		behind := false
		for partition, end := range ends {
			behind = behind || to[partition] < end
		}
		if !behind {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return nil
		case <-poll.C:
		}
	}
}

// EventsEnd returns how many records skein.events has taken in all.
func (s *Server) EventsEnd(ctx context.Context) (int64, error) {
	ends, err := s.ends(ctx)
	if err != nil {
		return 0, err
	}
	var n int64
	for _, end := range ends {
		n += end
	}
	return n, nil
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
