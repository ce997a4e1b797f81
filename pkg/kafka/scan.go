package kafka

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Span is a stretch of a partition: the first offset and the one after the last.
type Span struct{ Start, End int64 }

// Empty reports whether there is no offset in it.
func (s Span) Empty() bool { return s.Start >= s.End }

// Spans returns what the partitions of a topic hold by now, up to the last record that is committed.
func Spans(ctx context.Context, adm *kadm.Client, topic string) (map[int32]Span, error) {
	starts, err := listed(ctx, topic, adm.ListStartOffsets)
	if err != nil {
		return nil, err
	}
	ends, err := listed(ctx, topic, adm.ListCommittedOffsets)
	if err != nil {
		return nil, err
	}
	spans := make(map[int32]Span, len(ends))
	for p, end := range ends {
		spans[p] = Span{Start: starts[p], End: end}
	}
	return spans, nil
}

// OffsetsAt returns, for each partition of a topic, the first offset whose record is not older than t,
// or the end.
func OffsetsAt(ctx context.Context, adm *kadm.Client, topic string, t time.Time) (map[int32]int64, error) {
	return listed(ctx, topic, func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
		return adm.ListOffsetsAfterMilli(ctx, t.UnixMilli(), topics...)
	})
}

func listed(ctx context.Context, topic string, list func(context.Context, ...string) (kadm.ListedOffsets, error)) (map[int32]int64, error) {
	offsets, err := list(ctx, topic)
	if err == nil {
		err = offsets.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("asking for offsets of %s: %w", topic, explain(err))
	}
	out := map[int32]int64{}
	offsets.Each(func(o kadm.ListedOffset) { out[o.Partition] = o.Offset })
	if len(out) == 0 {
		return nil, fmt.Errorf("asking for offsets of %s: %w", topic, ErrNoTopic)
	}
	return out, nil
}

const (
	// scanPoll is how many records are taken from the client at once.
	scanPoll = 1000
	// scanQuiet is how long a scan waits for the next record. All that it reads is there already, so
	// this is for brokers that are away.
	scanQuiet = 30 * time.Second
)

// Scan reads spans of a topic, read_committed and outside of any group: records of one partition in
// order, partitions in any. The spans must lie within what Spans has said. It ends with the spans, or
// with an error.
func Scan(ctx context.Context, cfg Config, topic string, spans map[int32]Span) iter.Seq2[*kgo.Record, error] {
	return func(yield func(*kgo.Record, error) bool) {
		from, open := map[int32]int64{}, map[int32]int64{}
		for p, s := range spans {
			if !s.Empty() {
				from[p], open[p] = s.Start, s.End
			}
		}
		if len(open) == 0 {
			return
		}
		// Control records, as markers are the last of what some producers write.
		cl, err := NewDirectReader(cfg, topic, from, kgo.KeepControlRecords())
		if err != nil {
			yield(nil, err)
			return
		}
		defer cl.Close()
		for len(open) > 0 {
			wait, cancel := context.WithTimeout(ctx, scanQuiet)
			fetches := cl.PollRecords(wait, scanPoll)
			cancel()
			if err := ctx.Err(); err != nil {
				yield(nil, err)
				return
			}
			for _, e := range fetches.Errors() {
				yield(nil, fmt.Errorf("reading %s: partition %d: %w", topic, max(e.Partition, 0), explain(e.Err)))
				return
			}
			for r := range fetches.RecordsAll() {
				end, ok := open[r.Partition]
				if !ok {
					continue
				}
				if r.Offset >= end-1 {
					delete(open, r.Partition)
				}
				if r.Offset < end && !r.Attrs.IsControl() && !yield(r, nil) {
					return
				}
			}
		}
	}
}
