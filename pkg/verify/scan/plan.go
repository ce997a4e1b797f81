package scan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/verify"
)

// decodedMessage is the memory of a message in a decoded record, in bytes. smallFold is the memory, in bytes, that
// maxThreads already allows for each run's fold.
const (
	decodedMessage = 512
	smallFold      = 1 << 20
)

// weigh returns how much a run adds to the bytes of a batch: its record, and the part of its fold that exceeds smallFold.
func weigh(m *kgo.Record, rec *record.Run) int {
	return len(m.Value) + decodedMessage*len(rec.Messages) + max(0, int(verify.Bytes(rec))-smallFold)
}

// requestTimeout limits one round of requests to the brokers.
const requestTimeout = 30 * time.Second

// part is a subset of a partition's threads: those whose hash modulo the field of equals n. The zero part contains all threads.
type part struct{ n, of uint64 }

func (p part) has(thread string) bool {
	if p.of == 0 {
		return true
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, thread) // a hash returns no error
	return h.Sum64()%p.of == p.n
}

// halves splits p into two parts.
func (p part) halves() [2]part {
	of := max(p.of, 1)
	return [2]part{{p.n, 2 * of}, {p.n + of, 2 * of}}
}

// fetchSpans fetches the offset ranges of both topics and selects the partitions to read.
func (r *reader) fetchSpans(ctx context.Context) error {
	adm, err := kafka.NewAdmin(r.cfg)
	if err != nil {
		return err
	}
	defer adm.Close()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	topics := r.cfg.Topics()
	count, err := kafka.PartitionCount(ctx, adm, topics)
	if err != nil {
		return err
	}
	// Fetch runs first, so that all raw records which they refer to are within the range of the events.
	if r.runs, err = kafka.Spans(ctx, adm, topics.Runs); err != nil {
		return err
	}
	if r.events, err = kafka.Spans(ctx, adm, topics.Events); err != nil {
		return err
	}
	r.partitions = slices.Sorted(maps.Keys(r.runs))
	if r.query.Thread != "" {
		if r.thread, err = record.ThreadKey(r.query.Tenant, r.query.Thread); err != nil {
			return fmt.Errorf("selecting runs: %w", err)
		}
		r.partitions = []int32{record.Partition([]byte(r.thread), count)}
	}
	if r.query.Span != nil {
		if r.query.Partition >= count {
			return fmt.Errorf("selecting runs: there is no partition %d, there are %d", r.query.Partition, count)
		}
		r.partitions = []int32{r.query.Partition}
	}
	return nil
}

// latest is what planning keeps of a run's latest record.
type latest struct {
	offset int64 // offset of the record
	bytes  int
	raw    kafka.Span
}

// batch is a group of threads whose raw records are read together.
type batch struct {
	partition int32
	// records maps the offset of each run's latest record to its thread.
	records map[int64]string
	// runs and raw are the spans of the two topics that contain the whole batch.
	runs, raw kafka.Span
	bytes     int
	threads   int
}

// errTooMany means that a partition has more runs than can be planned at once.
var errTooMany = errors.New("there are more runs than are planned at once")

// plan groups the selected threads of a partition into batches. It orders threads by first event, so that those of a
// batch are close together. excluded has the keys of threads that are too large for a batch.
func (r *reader) plan(ctx context.Context, partition int32) (batches []*batch, excluded []string, err error) {
	threads, planned := map[string]map[string]latest{}, 0
	large := map[string]bool{}
	for m, err := range kafka.Scan(ctx, r.cfg, r.cfg.Topics().Runs, map[int32]kafka.Span{partition: r.runs[partition]}) {
		if err != nil {
			return nil, nil, fmt.Errorf("reading run records: %w", err)
		}
		thread, ok := r.selects(m)
		if !ok || large[thread] {
			continue
		}
		runs := threads[thread]
		before := len(runs)
		if len(m.Value) == 0 {
			delete(runs, string(m.Key))
			planned += len(runs) - before
			continue
		}
		rec, err := decode(m)
		if err != nil {
			return nil, nil, err
		}
		if runs == nil {
			runs = map[string]latest{}
			threads[thread] = runs
		}
		raw := kafka.Span{Start: rec.Raw.First, End: rec.Raw.Next}
		if rec.LateError != nil {
			raw.End = rec.LateError.Offset + 1
		}
		runs[string(m.Key)] = latest{offset: m.Offset, bytes: weigh(m, rec), raw: raw}
		planned += len(runs) - before
		switch {
		case r.maxRuns == 0:
		case len(runs) > r.maxRuns/4:
			planned -= len(runs)
			large[thread] = true
			delete(threads, thread)
		case planned > r.maxRuns:
			return nil, nil, errTooMany
		}
	}
	excluded = slices.Collect(maps.Keys(large))
	var parts []*batch
	for key, runs := range threads {
		one := r.threadBatch(partition, key, runs)
		switch {
		case one == nil:
		case r.maxBytes > 0 && one.bytes > r.maxBytes:
			excluded = append(excluded, key)
		default:
			parts = append(parts, one)
		}
	}
	slices.Sort(excluded)
	slices.SortFunc(parts, func(a, b *batch) int { return cmp.Compare(a.raw.Start, b.raw.Start) })
	for _, part := range parts {
		if n := len(batches); n > 0 && batches[n-1].threads < maxThreads && batches[n-1].bytes+part.bytes <= maxRecordBytes {
			batches[n-1].join(part)
			continue
		}
		batches = append(batches, part)
	}
	for _, b := range batches {
		held := r.events[partition]
		b.raw = kafka.Span{Start: max(b.raw.Start, held.Start), End: min(b.raw.End, held.End)}
	}
	return batches, excluded, nil
}

// selects reports whether a record of skein.runs belongs to a thread that the query may select. It returns the thread's
// key.
func (r *reader) selects(m *kgo.Record) (thread string, ok bool) {
	headers, err := record.ParseHeaders(m.Headers)
	if err != nil || headers.Kind != record.KindRun {
		return "", false
	}
	parts, err := record.SplitKey(string(m.Key))
	if err != nil || len(parts) != 3 || r.query.Tenant != "" && parts[0] != r.query.Tenant {
		return "", false
	}
	if thread, err = record.ThreadKey(parts[0], parts[1]); err != nil {
		return "", false
	}
	return thread, (r.thread == "" || thread == r.thread) && r.part.has(thread)
}

// threadBatch returns a batch of one thread, or nil if the query selects none of its runs.
func (r *reader) threadBatch(partition int32, thread string, runs map[string]latest) *batch {
	var b *batch
	selected := false
	for _, h := range runs {
		one := &batch{
			partition: partition, records: map[int64]string{h.offset: thread}, bytes: h.bytes, threads: 1,
			runs: kafka.Span{Start: h.offset, End: h.offset + 1}, raw: h.raw,
		}
		selected = selected || r.query.Span == nil || overlap(*r.query.Span, h.raw)
		if b == nil {
			b = one
			continue
		}
		b.join(one)
		b.threads = 1
	}
	if !selected {
		return nil
	}
	return b
}

func overlap(a, b kafka.Span) bool { return a.Start < b.End && b.Start < a.End }

func (b *batch) join(other *batch) {
	maps.Copy(b.records, other.records)
	b.bytes += other.bytes
	b.threads += other.threads
	b.runs = kafka.Span{Start: min(b.runs.Start, other.runs.Start), End: max(b.runs.End, other.runs.End)}
	b.raw = kafka.Span{Start: min(b.raw.Start, other.raw.Start), End: max(b.raw.End, other.raw.End)}
}

// read calls f for each run record of a batch. Records that no longer exist remain in b.records.
func (r *reader) read(ctx context.Context, b *batch, f func(thread string, m *kgo.Record, rec *record.Run) error) error {
	for m, err := range kafka.Scan(ctx, r.cfg, r.cfg.Topics().Runs, map[int32]kafka.Span{b.partition: b.runs}) {
		if err != nil {
			return fmt.Errorf("reading run records: %w", err)
		}
		thread, ok := b.records[m.Offset]
		if !ok {
			continue
		}
		rec, err := decode(m)
		if err != nil {
			return err
		}
		if err := f(thread, m, rec); err != nil {
			return err
		}
		delete(b.records, m.Offset)
	}
	return nil
}

func decode(m *kgo.Record) (*record.Run, error) {
	rec, err := record.DecodeRun(m.Value)
	if err != nil {
		return nil, fmt.Errorf("reading run record %d:%d: %w", m.Partition, m.Offset, err)
	}
	return rec, nil
}
