package kafkatest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
)

// readAll reads a topic from its start to its last stable offsets. A count of records is no end:
// control records and compaction leave gaps. So the reader keeps control records, which stand at the
// end of every transaction, and drops them here.
func readAll(ctx context.Context, cfg kafka.Config, topic string) ([]*kgo.Record, error) {
	cfg.Registerer = nil
	adm, err := kafka.NewAdmin(cfg)
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	asking, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	starts, err := adm.ListStartOffsets(asking, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", topic, err)
	}
	ends, err := adm.ListCommittedOffsets(asking, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", topic, err)
	}
	from := make(map[int32]int64)
	open := make(map[int32]int64)
	ends.Each(func(end kadm.ListedOffset) {
		if start, ok := starts.Lookup(topic, end.Partition); ok && start.Offset < end.Offset {
			from[end.Partition] = start.Offset
			open[end.Partition] = end.Offset
		}
	})
	if len(from) == 0 {
		return nil, nil
	}
	cl, err := kafka.NewDirectReader(cfg, topic, from, kgo.KeepControlRecords())
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	var out []*kgo.Record
	for len(open) > 0 {
		poll, cancel := context.WithTimeout(ctx, Timeout)
		fetches := cl.PollFetches(poll)
		cancel()
		if err := fetches.Err0(); err != nil {
			return nil, fmt.Errorf("reading %s: %w", topic, err)
		}
		var perr error
		fetches.EachError(func(_ string, p int32, err error) {
			perr = fmt.Errorf("reading %s: partition %d: %w", topic, p, err)
		})
		if perr != nil {
			return nil, perr
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end, ok := open[r.Partition]
			if !ok {
				return
			}
			if !r.Attrs.IsControl() && r.Offset < end {
				out = append(out, r)
			}
			if r.Offset >= end-1 {
				delete(open, r.Partition)
			}
		})
	}
	slices.SortStableFunc(out, func(a, b *kgo.Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return out, nil
}
