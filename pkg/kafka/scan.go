package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Span is a range of offsets of a partition; End is exclusive.
type Span struct{ Start, End int64 }

// Empty reports whether the span has no offset.
func (s Span) Empty() bool { return s.Start >= s.End }

// Spans returns the offsets of each partition of a topic, from its start to the last stable offset.
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

// Ends returns the high watermark of each partition of a topic. Records of open transactions are below it.
func Ends(ctx context.Context, adm *kadm.Client, topic string) (map[int32]int64, error) {
	return listed(ctx, topic, adm.ListEndOffsets)
}

// Unsettled returns, for each partition with an open transaction, the offsets that cannot be read because of it. On the other
// partitions, Spans covers all records written before the call.
func Unsettled(ctx context.Context, adm *kadm.Client, topic string) (map[int32]Span, error) {
	ends, err := Ends(ctx, adm, topic)
	if err != nil {
		return nil, err
	}
	stable, err := listed(ctx, topic, adm.ListCommittedOffsets)
	if err != nil {
		return nil, err
	}
	open := map[int32]Span{}
	for p, end := range ends {
		if at, ok := stable[p]; !ok || at < end {
			open[p] = Span{Start: at, End: end}
		}
	}
	return open, nil
}

// OffsetsAt returns for each partition of a topic the first offset whose record is not older than t, or else the end.
func OffsetsAt(ctx context.Context, adm *kadm.Client, topic string, t time.Time) (map[int32]int64, error) {
	return listed(ctx, topic, func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
		return adm.ListOffsetsAfterMilli(ctx, t.UnixMilli(), topics...)
	})
}

// These are offsets of a partition that Offset returns besides those of a time.
const (
	Earliest = -2 - iota // the first one that the partition still has
	Latest               // the high watermark
	Stable               // the one after the last committed record
)

// Offset asks the leader of one partition of a topic, and no other broker, for an offset: Earliest, Latest, Stable, or the first one whose
// record is not older than a time in milliseconds (the high watermark if there is none). The error is ErrNoPartition or Kafka's.
func Offset(ctx context.Context, cl *kgo.Client, topic string, partition int32, at int64) (int64, error) {
	req, t, p := kmsg.NewPtrListOffsetsRequest(), kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, at
	switch at {
	case Latest:
		p.Timestamp = -1
	case Stable:
		p.Timestamp, req.IsolationLevel = -1, 1
	}
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.ReplicaID, req.Topics = -1, append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	offset := int64(-1)
	switch {
	case err != nil:
	case len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1:
		err = ErrNoPartition
	default:
		got := resp.Topics[0].Partitions[0]
		offset, err = got.Offset, kerr.ErrorForCode(got.ErrorCode)
	}
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		err = fmt.Errorf("%w: %w", ErrNoPartition, err)
	case err == nil && offset < 0 && at >= 0:
		return Offset(ctx, cl, topic, partition, Latest)
	}
	if err != nil {
		return 0, fmt.Errorf("asking for an offset of %s/%d: %w", topic, partition, explain(err))
	}
	return offset, nil
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
	// scanPoll is the maximum number of records of one poll.
	scanPoll = 1000
	// scanQuiet is how long a scan waits for the next record. All its records exist, so it waits only while brokers are unavailable.
	scanQuiet = 30 * time.Second
	// scanFetch limits the bytes of a partition in one response. Events are at least ten times larger when unpacked: with a reader's
	// usual 16 MiB, a scan would take hundreds of megabytes and be no faster. FetchMaxBytes is no alternative, because kfake omits
	// aborted transactions from a response that it cuts.
	scanFetch = 2 << 20
)

// Scan reads spans of a topic, read_committed and without a group. The spans must lie within those that Spans returns. Scan keeps
// the order within each partition, but not between partitions. It ends after the spans or with an error, such as
// record.ErrUnknownVersion for a record of a newer Skein, which one that cfg.IngestKeys refuse is not.
func Scan(ctx context.Context, cfg Config, topic string, spans map[int32]Span, extra ...kgo.Opt) iter.Seq2[*kgo.Record, error] {
	return scan(ctx, cfg, topic, spans, scanQuiet, extra...)
}

// scan is Scan that waits for the next record as long as quiet.
func scan(
	ctx context.Context, cfg Config, topic string, spans map[int32]Span, quiet time.Duration, extra ...kgo.Opt,
) iter.Seq2[*kgo.Record, error] {
	return func(yield func(*kgo.Record, error) bool) {
		from, open := map[int32]int64{}, map[int32]Span{} // partitions that are not read to the end of their spans
		for p, span := range spans {
			if !span.Empty() {
				from[p], open[p] = span.Start, span
			}
		}
		if len(open) == 0 {
			return
		}
		// Keep control records, because the last offset of a span may be a transaction marker.
		opts := append([]kgo.Opt{kgo.KeepControlRecords(), kgo.FetchMaxPartitionBytes(scanFetch)}, extra...)
		cl, err := NewDirectReader(cfg, topic, from, opts...)
		if err != nil {
			yield(nil, err)
			return
		}
		defer cl.Close()
		for len(open) > 0 {
			wait, cancel := context.WithTimeout(ctx, quiet)
			fetches, err := poll(wait, cl, topic)
			cancel()
			if err != nil {
				yield(nil, cmp.Or(ctx.Err(), err))
				return
			}
			for r := range fetches.RecordsAll() {
				span, isOpen := open[r.Partition]
				if isOpen && r.Offset >= span.Start && r.Offset < span.End && !r.Attrs.IsControl() {
					if err := CheckVersion(r); err != nil && (topic != cfg.Topics().Events || !cfg.IngestKeys.Refuses(r)) {
						yield(nil, err)
						return
					}
					if !yield(r, nil) {
						return
					}
				}
				if isOpen && r.Offset >= span.End-1 {
					delete(open, r.Partition)
				}
			}
		}
	}
}

// poll returns the next records of a reader, or the first error. If ctx ends before a record arrives, the error wraps that of ctx.
func poll(ctx context.Context, cl *kgo.Client, topic string) (kgo.Fetches, error) {
	fetches := cl.PollRecords(ctx, scanPoll)
	for _, e := range fetches.Errors() {
		return nil, fmt.Errorf("reading %s: partition %d: %w", topic, max(e.Partition, 0), explain(e.Err))
	}
	return fetches, nil
}

// ScanByTime is Scan, but merges the partitions by the records' timestamps and keeps the order within each partition. A copy thus
// keeps the order between threads. Each partition has its own reader; together, they use the memory of one scan.
func ScanByTime(ctx context.Context, cfg Config, topic string, spans map[int32]Span) iter.Seq2[*kgo.Record, error] {
	fetch := kgo.FetchMaxPartitionBytes(max(64<<10, scanFetch/int32(max(1, len(spans)))))
	return func(yield func(*kgo.Record, error) bool) {
		type head struct {
			*kgo.Record
			next func() (*kgo.Record, error, bool)
		}
		var heads []head
		for _, p := range slices.Sorted(maps.Keys(spans)) { // at equal times the lower partition comes first
			next, stop := iter.Pull2(Scan(ctx, cfg, topic, map[int32]Span{p: spans[p]}, fetch))
			defer stop()
			m, err, ok := next()
			if err != nil {
				yield(nil, err)
				return
			}
			if ok {
				heads = append(heads, head{m, next})
			}
		}
		for len(heads) > 0 {
			first := 0
			for i, h := range heads {
				if h.Timestamp.Before(heads[first].Timestamp) {
					first = i
				}
			}
			if !yield(heads[first].Record, nil) {
				return
			}
			m, err, ok := heads[first].next()
			switch {
			case err != nil:
				yield(nil, err)
				return
			case !ok:
				heads = slices.Delete(heads, first, first+1)
			default:
				heads[first].Record = m
			}
		}
	}
}

// Follow is Scan without ends: it reads partitions of a topic from the offsets of the argument from, and ends with ctx or another error.
// It waits for unavailable brokers.
func Follow(ctx context.Context, cfg Config, topic string, from map[int32]int64) iter.Seq2[*kgo.Record, error] {
	spans := make(map[int32]Span, len(from))
	for p, at := range from {
		spans[p] = Span{Start: at, End: math.MaxInt64}
	}
	return scan(ctx, cfg, topic, spans, math.MaxInt64)
}
