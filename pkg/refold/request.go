package refold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// Request is a request to the compactor to rewrite the records of a thread.
type Request struct {
	Tenant, ThreadID string
	// Position is its position in skein.events, once it was sent.
	Position record.Position
}

// Send writes the requests. They are answered in the order of each partition; Await says when that is done.
func Send(ctx context.Context, cfg kafka.Config, requests []Request) error {
	topic, count, err := events(ctx, cfg)
	if err != nil {
		return err
	}
	cl, err := kafka.NewProducer(cfg)
	if err != nil {
		return err
	}
	defer cl.Close()
	records := make([]*kgo.Record, len(requests))
	for i, r := range requests {
		key, err := record.ThreadKey(r.Tenant, r.ThreadID)
		if err != nil {
			return fmt.Errorf("asking to fold threads again: %w", err)
		}
		records[i] = &kgo.Record{
			Topic: topic, Partition: record.Partition([]byte(key), count), Key: []byte(key), Value: []byte("{}"),
			Headers: kafka.Headers(record.Headers{Version: record.Version, Kind: record.KindRefold, Seq: -1}),
		}
	}
	if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("asking to fold threads again: some may be asked: %w", err)
	}
	for i, m := range records {
		requests[i].Position = record.Position{Partition: m.Partition, Offset: m.Offset}
	}
	return nil
}

// events returns the topic of raw events and its partition count: a thread's partition depends on that, so one
// that is under change must not be used.
func events(ctx context.Context, cfg kafka.Config) (topic string, count int32, err error) {
	adm, err := kafka.NewAdmin(cfg)
	if err != nil {
		return "", 0, err
	}
	defer adm.Close()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	topics := cfg.Topics()
	count, err = kafka.PartitionCount(ctx, adm, topics)
	return topics.Events, count, err
}

// ErrNoCompactor says that no compactor of the group reads the events.
var ErrNoCompactor = errors.New("nobody in the group reads skein.events of this topic set: start its compactors, or name the group that they are in")

const (
	// awaitEvery is the time between two checks of the compactors' progress.
	awaitEvery = 200 * time.Millisecond
	// NobodyFor is how long Await waits for a group without compactors: they may be restarting.
	NobodyFor = time.Minute
)

// Await waits, as long as ctx lasts, until the compactors of the group have processed all requests, and calls progress (may be nil) with
// the number of those processed. It returns ErrNoCompactor if no member of the group has read the events for NobodyFor.
func Await(ctx context.Context, cfg kafka.Config, group string, requests []Request, nobodyFor time.Duration, progress func(done, total int)) error {
	adm, err := kafka.NewAdmin(cfg)
	if err != nil {
		return err
	}
	defer adm.Close()
	seen := time.Now()
	for {
		decided, err := decidedBelow(ctx, adm, group, cfg.Topics().Events)
		if err != nil {
			return err
		}
		done := 0
		for _, r := range requests {
			if r.Position.Offset < decided[r.Position.Partition] {
				done++
			}
		}
		if progress != nil {
			progress(done, len(requests))
		}
		if done == len(requests) {
			return nil
		}
		switch there, err := hasReaders(ctx, adm, group, cfg.Topics().Events); {
		case err != nil:
			return err
		case there:
			seen = time.Now()
		case time.Since(seen) >= nobodyFor:
			return fmt.Errorf("waiting for the compactors of %s: %d of %d requests are decided: %w", group, done, len(requests), ErrNoCompactor)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the compactors of %s: %d of %d requests are decided: %w", group, done, len(requests), ctx.Err())
		case <-time.After(awaitEvery):
		}
	}
}

// hasReaders reports whether a member of a group reads a topic; a group that does not exist has none. During a rebalance brokers do not say
// what members read, so any member counts.
func hasReaders(ctx context.Context, adm *kadm.Client, group, topic string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	described, err := adm.DescribeGroups(ctx, group)
	if err == nil {
		err = described.Error()
	}
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return false, fmt.Errorf("asking for the members of %s: %w", group, err)
	}
	g := described[group]
	return len(g.Members) > 0 && (g.State != "Stable" || slices.Contains(g.JoinTopics(), topic)), nil
}

// decidedBelow returns the processed offset by partition.
func decidedBelow(ctx context.Context, adm *kadm.Client, group, topic string) (map[int32]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	offsets, err := adm.FetchOffsets(ctx, group)
	if err == nil {
		err = offsets.Error()
	}
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, fmt.Errorf("asking for the offsets of %s: %w", group, err)
	}
	out := map[int32]int64{}
	for p, o := range offsets[topic] {
		if o.Metadata == "" {
			out[p] = o.At
			continue
		}
		if out[p], _, err = record.DecodeProcessed(o.Metadata); err != nil {
			return nil, fmt.Errorf("reading the offsets of %s: %w", group, err)
		}
	}
	return out, nil
}
