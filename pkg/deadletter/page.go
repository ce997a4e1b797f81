package deadletter

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// Query selects dead letters.
type Query struct {
	// Tenant selects the dead letters of a tenant. AnyTenant selects all, including those without a tenant.
	Tenant    string
	AnyTenant bool
	// Reason and Thread select by reason and thread id; "" means any.
	Reason, Thread string
	// Since and Until limit the time of the dead letter; zero means no limit. Until is exclusive.
	Since, Until time.Time
	// IDs selects single dead letters; empty means all.
	IDs []record.Position
}

func (q Query) matches(l Record) bool {
	return (q.AnyTenant || l.Tenant != "" && l.Tenant == q.Tenant) &&
		(q.Reason == "" || l.Reason == q.Reason) &&
		(q.Thread == "" || l.ThreadID == q.Thread) &&
		!l.At.Before(q.Since) && (q.Until.IsZero() || l.At.Before(q.Until)) &&
		(len(q.IDs) == 0 || slices.Contains(q.IDs, l.ID))
}

// Page is a page of dead letters.
type Page struct {
	Records []Record
	// Next is the last dead letter that was read for this page, possibly of another tenant; nil at the end of the topic.
	Next *record.Position
}

// pageScan is the maximum number of dead letters, of all tenants, that are read for one page.
const pageScan = 20_000

// ReadPage reads at most limit dead letters after a position (nil: from the start), by partition and offset. It scans at most pageScan dead
// letters, including those of other tenants, so a page may be short or empty although there are more.
func ReadPage(ctx context.Context, cfg kafka.Config, q Query, after *record.Position, limit int) (Page, error) {
	page, scanned := Page{Records: []Record{}}, 0
	for m, err := range each(ctx, cfg, q, after) {
		if err != nil {
			return Page{}, err
		}
		scanned++
		l := Read(m)
		if q.matches(l) {
			page.Records = append(page.Records, l)
		}
		if len(page.Records) == limit || scanned == pageScan {
			page.Next = &l.ID
			break
		}
	}
	return page, nil
}

// each reads the dead letters from a query's Since and after a position, by partition and offset.
func each(ctx context.Context, cfg kafka.Config, q Query, after *record.Position) func(yield func(*kgo.Record, error) bool) {
	return func(yield func(*kgo.Record, error) bool) {
		topic := cfg.Topics().DeadLetters
		spans, since, err := offsets(ctx, cfg, topic, q.Since)
		if err != nil {
			yield(nil, fmt.Errorf("reading dead letters: %w", err))
			return
		}
		for _, p := range slices.Sorted(maps.Keys(spans)) {
			span := spans[p]
			span.Start = max(span.Start, since[p])
			switch {
			case after == nil || p > after.Partition:
			case p == after.Partition:
				span.Start = max(span.Start, after.Offset+1)
			default:
				continue
			}
			for m, err := range kafka.Scan(ctx, cfg, topic, map[int32]kafka.Span{p: span}) {
				if err != nil {
					err = fmt.Errorf("reading dead letters: %w", err)
				}
				if !yield(m, err) || err != nil {
					return
				}
			}
		}
	}
}

// offsets returns the spans of a topic, and its offsets at a time (the argument at; no offsets if zero). For skein.events, it fails while
// the topics of the set have different partition counts, because a thread's partition depends on the count.
func offsets(
	ctx context.Context, cfg kafka.Config, topic string, at time.Time,
) (spans map[int32]kafka.Span, since map[int32]int64, err error) {
	adm, err := kafka.NewAdmin(cfg)
	if err != nil {
		return nil, nil, err
	}
	defer adm.Close()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if topic == cfg.Topics().Events {
		if _, err := kafka.PartitionCount(ctx, adm, cfg.Topics()); err != nil {
			return nil, nil, err
		}
	}
	if spans, err = kafka.Spans(ctx, adm, topic); err != nil || at.IsZero() {
		return spans, nil, err
	}
	since, err = kafka.OffsetsAt(ctx, adm, topic, at)
	return spans, since, err
}

// askTimeout limits the time of a group of requests to the brokers.
const askTimeout = 30 * time.Second
