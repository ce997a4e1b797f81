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

// Request asks the compactor to write the records of a thread anew.
type Request struct {
	Tenant, ThreadID string
	// Position is where it lies in skein.events, once it is asked.
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
	// awaitEvery is the time between two looks at how far the compactors are.
	awaitEvery = 200 * time.Millisecond
	// NobodyFor is how long Await waits for a group without compactors: they may be starting anew.
	NobodyFor = time.Minute
)

// Await waits, as long as ctx lasts, until the compactors of the group have decided all requests, and calls
// progress (nil: nobody) with how many they have. It is ErrNoCompactor where nobody in the group has read the events for a time: NobodyFor.
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

// hasReaders reports whether anybody in a group reads a topic; nobody is in one that is not there. While a group shares
// its partitions out anew, brokers do not say what its members read, and any member is taken for one that does.
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

// decidedBelow returns, by partition, the first event about which the compactors have decided nothing.
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
