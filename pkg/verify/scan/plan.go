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

// The memory that a message takes in a record that is decoded, and that of a run's fold which the number of threads allows for.
const (
	decodedMessage = 512
	smallFold      = 1 << 20
)

// weigh is how much of a batch's bytes a run takes: its record and, where it is more than a small one, its fold.
func weigh(m *kgo.Record, rec *record.Run) int {
	return len(m.Value) + decodedMessage*len(rec.Messages) + max(0, int(verify.Bytes(rec))-smallFold)
}

// requestTimeout bounds one round of requests to the brokers.
const requestTimeout = 30 * time.Second

// part is a part of a partition's threads: those whose hash leaves n when divided by of; the zero part is all.
type part struct{ n, of uint64 }

func (p part) has(thread string) bool {
	if p.of == 0 {
		return true
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, thread) // a hash takes everything
	return h.Sum64()%p.of == p.n
}

// halves are the two parts that make it up.
func (p part) halves() [2]part {
	of := max(p.of, 1)
	return [2]part{{p.n, 2 * of}, {p.n + of, 2 * of}}
}

// fetchSpans fetches what the topics hold.
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
	// Runs first: what their records name is then among the events.
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

// latest is what is kept of a run's latest record while its partition is planned.
type latest struct {
	offset int64 // of the record
	bytes  int
	raw    kafka.Span
}

// batch is a number of threads whose raw records are read together.
type batch struct {
	partition int32
	// records are the threads of the runs' latest records, by offset.
	records map[int64]string
	// runs and raw are the stretches of the two topics in which all is.
	runs, raw kafka.Span
	bytes     int
	threads   int
}

// errTooMany says that there are more runs than are planned at once.
var errTooMany = errors.New("there are more runs than are planned at once")

// plan puts the selected threads of a partition into batches, by their first event: the threads of
// a batch then lie close together. Excluded are the keys of those that are too large for one.
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
		runs[string(m.Key)] = latest{
			offset: m.Offset, bytes: weigh(m, rec), raw: kafka.Span{Start: rec.Raw.First, End: rec.Raw.Next},
		}
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

// selects reports whether a record of skein.runs is of a run of a thread that the query may select, and returns the
// thread's key.
func (r *reader) selects(m *kgo.Record) (thread string, ok bool) {
	headers, err := kafka.ParseHeaders(m.Headers)
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

// threadBatch is a batch of one thread; nil where it has no selected run.
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

// read calls f with the run records of a batch, by their threads, and leaves in it those that are not there any more.
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

// take calls f with a raw record where it is one that runs are folded from; like is what record.ParseHeadersLike takes.
func take(m *kgo.Record, like record.Headers, f func(record.Event) error) error {
	e, ok, err := kafka.RunEvent(m, like)
	if !ok {
		return err
	}
	return f(e)
}
