package kafka

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
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

// Ends returns where the partitions of a topic end, with what is in a transaction.
func Ends(ctx context.Context, adm *kadm.Client, topic string) (map[int32]int64, error) {
	return listed(ctx, topic, adm.ListEndOffsets)
}

// Unsettled returns, of each partition of a topic, what was written by now and cannot be read, as a transaction
// is open there. Where there is none, Spans tells of all that was written before the call.
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
	// scanFetch bounds what one answer of a broker has of a partition. An answer is unpacked whole, and events compress to a tenth and less:
	// with a reader's 16 MiB that takes some hundred megabytes, and a scan is no faster. FetchMaxBytes would not do: kfake leaves out which
	// transactions were aborted where that cuts an answer.
	scanFetch = 2 << 20
)

// Scan reads spans of a topic, read_committed and outside of any group: records of one partition in
// order, partitions in any. The spans must lie within what Spans has said. It ends with the spans, or
// with an error: a record of a newer Skein (record.ErrUnknownVersion) is one.
func Scan(ctx context.Context, cfg Config, topic string, spans map[int32]Span) iter.Seq2[*kgo.Record, error] {
	return scan(ctx, cfg, topic, spans)
}

func scan(ctx context.Context, cfg Config, topic string, spans map[int32]Span, extra ...kgo.Opt) iter.Seq2[*kgo.Record, error] {
	return func(yield func(*kgo.Record, error) bool) {
		from, open := map[int32]int64{}, map[int32]Span{} // the partitions that are not read to their end
		for p, span := range spans {
			if !span.Empty() {
				from[p], open[p] = span.Start, span
			}
		}
		if len(open) == 0 {
			return
		}
		// Control records, as markers are the last of what some producers write.
		opts := append([]kgo.Opt{kgo.KeepControlRecords(), kgo.FetchMaxPartitionBytes(scanFetch)}, extra...)
		cl, err := NewDirectReader(cfg, topic, from, opts...)
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
				span, isOpen := open[r.Partition]
				if isOpen && r.Offset >= span.Start && r.Offset < span.End && !r.Attrs.IsControl() {
					if err := CheckVersion(r); err != nil {
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

// ScanByTime is Scan with the partitions' records in the order of their times, as far as each partition is in it: what reads by time
// finds the same in a copy, and events of two threads come as they came. Partitions have a reader each, and share what one scan has in memory.
func ScanByTime(ctx context.Context, cfg Config, topic string, spans map[int32]Span) iter.Seq2[*kgo.Record, error] {
	fetch := kgo.FetchMaxPartitionBytes(max(64<<10, scanFetch/int32(max(1, len(spans)))))
	return func(yield func(*kgo.Record, error) bool) {
		type head struct {
			*kgo.Record
			next func() (*kgo.Record, error, bool)
		}
		var heads []head
		for _, p := range slices.Sorted(maps.Keys(spans)) { // of two records of one time, that of the lower partition comes first
			next, stop := iter.Pull2(scan(ctx, cfg, topic, map[int32]Span{p: spans[p]}, fetch))
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

// Follow reads partitions of a topic from offsets on, read_committed and outside of any group, and goes on with what comes. It ends
// with ctx, or with an error: a record of a newer Skein (record.ErrUnknownVersion) is one. Brokers that are away are waited for.
func Follow(ctx context.Context, cfg Config, topic string, from map[int32]int64) iter.Seq2[*kgo.Record, error] {
	return func(yield func(*kgo.Record, error) bool) {
		cl, err := NewDirectReader(cfg, topic, from, kgo.FetchMaxPartitionBytes(scanFetch))
		if err != nil {
			yield(nil, err)
			return
		}
		defer cl.Close()
		for {
			fetches := cl.PollRecords(ctx, scanPoll)
			if err := ctx.Err(); err != nil {
				yield(nil, err)
				return
			}
			for _, e := range fetches.Errors() {
				yield(nil, fmt.Errorf("reading %s: partition %d: %w", topic, max(e.Partition, 0), explain(e.Err)))
				return
			}
			for r := range fetches.RecordsAll() {
				if err := CheckVersion(r); err != nil {
					yield(nil, err)
					return
				}
				if !yield(r, nil) {
					return
				}
			}
		}
	}
}
