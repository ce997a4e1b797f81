package migrate

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// The limits of one transaction, which takes far less than its timeout of 30 s.
const (
	chunkRecords = 5000
	chunkBytes   = 16 << 20
)

// isThreads reports whether the argument partition is the old partition of the thread with this key.
func (g *migration) isThreads(key []byte, partition int32) bool {
	parts, err := record.SplitKey(string(key))
	return err == nil && len(parts) == 2 && record.Partition(key, g.counts[0]) == partition
}

// partition returns the new partition of a raw record. The new compactors must refuse records that the old ones have refused for their
// partition or key, so such records go to a wrong partition, or are left out (-1) if the new set has only one.
func (g *migration) partition(m *kgo.Record) int32 {
	n := g.counts[1]
	parts, err := record.SplitKey(string(m.Key))
	switch {
	case err != nil || len(parts) != 2:
		return m.Partition % n
	case g.isThreads(m.Key, m.Partition):
		return record.Partition(m.Key, n)
	case n == 1:
		return -1
	}
	return (record.Partition(m.Key, n) + 1) % n
}

// copyEvents copies the raw events that are not copied yet, merged by time.
func (g *migration) copyEvents(ctx context.Context) error {
	spans, err := kafka.Spans(ctx, g.adm, g.old.Events)
	if err != nil {
		return err
	}
	s, total := g.state.clone(), 0
	for p, span := range spans {
		next := s.at(nextEvents, p)
		switch {
		case span.Start > next && next == s.Start[p]: // nothing of the partition is copied yet
			next = span.Start
			s.Start[p] = next
			s.set(nextEvents, p, next)
		case span.Start > next && !g.state.Done: // a complete copy no longer needs the old set
			return fmt.Errorf("%w: partition %d of %s from %d to %d: begin again with a new prefix, and a longer retention",
				ErrExpired, p, g.old.Events, next, span.Start)
		}
		if g.state.Done && span.End > next {
			m, err := g.firstEvent(ctx, p, next, span.End)
			if err != nil {
				return err
			}
			if m != nil {
				return fmt.Errorf("%w: it is complete, and event %d:%d came to %s after that", ErrInUse, p, m.Offset, g.old.Events)
			}
		}
		spans[p] = kafka.Span{Start: next, End: span.End}
		total += int(span.End - next)
	}
	g.report.Left = total
	if g.state.Done {
		return nil
	}
	c := &chunk{migration: g, topic: nextEvents, state: s, total: total}
	for m, err := range kafka.ScanByTime(ctx, g.From, g.old.Events, spans) {
		if err != nil {
			return err
		}
		var out *kgo.Record
		if q := g.partition(m); q >= 0 {
			out = &kgo.Record{Topic: g.new.Events, Partition: q, Key: m.Key, Value: m.Value, Timestamp: m.Timestamp, Headers: copiedHeaders(m)}
		}
		if err := c.add(ctx, m, out); err != nil {
			return err
		}
	}
	// Offsets after the last record belong to transaction markers, whose expiry is no loss.
	for p, span := range spans {
		if s := c.state; span.End > s.at(nextEvents, p) {
			if s.at(nextEvents, p) == s.Start[p] {
				s.Start[p] = span.End
			}
			s.set(nextEvents, p, span.End)
		}
	}
	if c.read == 0 && !maps.Equal(c.state.Next[nextEvents], g.state.Next[nextEvents]) {
		return g.commit(ctx, c.state, nil)
	}
	return c.end(ctx)
}

// copiedHeaders returns an event's headers with its old position. It drops the retry header of an event that was copied before: that
// header has the position of a dead letter in a still older set.
func copiedHeaders(m *kgo.Record) []kgo.RecordHeader {
	_, before := positionIn(m, record.HeaderCopiedFrom)
	out := slices.DeleteFunc(slices.Clone(m.Headers), func(h kgo.RecordHeader) bool {
		return h.Key == record.HeaderCopiedFrom || before && h.Key == record.HeaderRetryOf
	})
	at := record.Position{Partition: m.Partition, Offset: m.Offset}
	return append(out, kgo.RecordHeader{Key: record.HeaderCopiedFrom, Value: []byte(at.String())})
}

// chunk has the records of one transaction.
type chunk struct {
	*migration
	topic       string
	state       *state
	records     []*kgo.Record
	bytes, read int
	done, total int
}

// add adds an old record and its copy; a nil copy is left out.
func (c *chunk) add(ctx context.Context, m, out *kgo.Record) error {
	c.state.set(c.topic, m.Partition, m.Offset+1)
	c.read++
	c.done++
	if out != nil {
		c.records = append(c.records, out)
		c.bytes += len(out.Key) + len(out.Value)
	}
	if c.read < chunkRecords && c.bytes < chunkBytes {
		return nil
	}
	return c.end(ctx)
}

// end commits the chunk.
func (c *chunk) end(ctx context.Context) error {
	if c.read == 0 {
		return nil
	}
	n := len(c.records)
	if err := c.commit(ctx, c.state, c.records); err != nil {
		return err
	}
	c.report.Copied[c.topic] += n
	c.state, c.records, c.bytes, c.read = c.state.clone(), nil, 0, 0
	if c.Progress != nil {
		c.Progress("copying "+c.topic, min(c.done, c.total), c.total)
	}
	return nil
}

// copyDerived copies run records, snapshots and dead letters; of compacted topics only the latest record of each key. Since an earlier
// call, records may have been erased or published again. So copyDerived also copies tombstones, and copies all dead letters again.
func (g *migration) copyDerived(ctx context.Context, p *places) error {
	if len(g.state.Next[nextDeadLetters]) > 0 {
		if err := g.dropDeadLetters(ctx); err != nil {
			return err
		}
	}
	for _, t := range []struct {
		name, old string
		read      func(context.Context, kafka.Config, string) iter.Seq2[*kgo.Record, error]
		copy      func(*places, *kgo.Record) (*kgo.Record, error)
	}{
		{nextRuns, g.old.Runs, g.latest, g.copyRun},
		{nextSnapshots, g.old.Snapshots, g.latest, g.copySnapshot},
		{nextDeadLetters, g.old.DeadLetters, g.all, g.copyDeadLetter},
	} {
		before := len(g.state.Next[t.name]) > 0
		c := &chunk{migration: g, topic: t.name, state: g.state.clone()}
		for m, err := range t.read(ctx, g.from, t.old) {
			if err != nil {
				return err
			}
			if m.Offset < g.state.at(t.name, m.Partition) {
				continue // copied before
			}
			if len(m.Value) == 0 && !before && t.name != nextDeadLetters {
				continue // a tombstone of a record that was not copied
			}
			out, err := t.copy(p, m)
			if err != nil {
				return fmt.Errorf("copying %d:%d of %s: %w", m.Partition, m.Offset, t.old, err)
			}
			if err := c.add(ctx, m, out); err != nil {
				return err
			}
		}
		if err := c.end(ctx); err != nil {
			return err
		}
	}
	return nil
}

// dropDeadLetters deletes the copied dead letters. If the process dies before this is recorded, the next call repeats it.
func (g *migration) dropDeadLetters(ctx context.Context) error {
	spans, err := g.spans(ctx, g.new.DeadLetters)
	if err != nil {
		return err
	}
	before := kadm.Offsets{}
	for p, span := range spans {
		if !span.Empty() {
			before.Add(kadm.Offset{Topic: g.new.DeadLetters, Partition: p, At: span.End})
		}
	}
	if err := g.deleteBefore(ctx, before); err != nil {
		return fmt.Errorf("deleting dead letters that were copied before: %w", err)
	}
	s := g.state.clone()
	delete(s.Next, nextDeadLetters)
	return g.commit(ctx, s, nil)
}

// threadOf returns the thread's key from the key of a derived record, and the thread's new partition.
func (g *migration) threadOf(key []byte) (string, int32, error) {
	of, _, _ := strings.Cut(string(key), "//") // a detail's key goes on with its name
	parts, err := record.SplitKey(of)
	if err == nil && len(parts) < 2 {
		err = fmt.Errorf("key of %d part", len(parts))
	}
	if err != nil {
		return "", 0, err
	}
	thread, err := record.ThreadKey(parts[0], parts[1])
	return thread, record.Partition([]byte(thread), g.counts[1]), err
}

func (g *migration) copyRun(p *places, m *kgo.Record) (*kgo.Record, error) {
	headers, err := record.ParseHeaders(m.Headers)
	if err != nil {
		return nil, err
	}
	if headers.Kind != record.KindRun && headers.Kind != record.KindErase && headers.Kind != record.KindThread {
		return nil, nil // fences and progress records have positions of the old set
	}
	thread, partition, err := g.threadOf(m.Key)
	if err != nil {
		return nil, err
	}
	out := &kgo.Record{Topic: g.new.Runs, Partition: partition, Key: m.Key, Timestamp: m.Timestamp, Headers: m.Headers}
	if len(m.Value) == 0 {
		return out, nil
	}
	switch headers.Kind {
	case record.KindThread:
		out.Value = m.Value
		return out, nil
	case record.KindErase:
		below, err := record.DecodeErased(m.Value)
		if err != nil {
			return nil, err
		}
		at, ok := p.threads[thread].at(below - 1)
		if !ok {
			return nil, nil // the erased events are gone
		}
		out.Value = record.EncodeErased(at + 1)
		return out, nil
	}
	r, err := record.DecodeRun(m.Value)
	if err != nil {
		return nil, err
	}
	out.Value, err = p.run(r, partition)
	return out, err
}

func (g *migration) copySnapshot(_ *places, m *kgo.Record) (*kgo.Record, error) {
	_, partition, err := g.threadOf(m.Key)
	if err != nil {
		return nil, err
	}
	return &kgo.Record{Topic: g.new.Snapshots, Partition: partition, Key: m.Key, Value: m.Value, Timestamp: m.Timestamp,
		Headers: m.Headers}, nil
}

// isErased reports whether a dead letter's thread was erased after its event. It compares old positions, as the events may be gone.
func (g *migration) isErased(p *places, m *kgo.Record) bool {
	at, ok := positionIn(m, record.HeaderPosition)
	return ok && g.isThreads(m.Key, at.Partition) && at.Offset < p.erased[string(m.Key)]
}

// copyDeadLetter copies a dead letter, unless it was published again or its thread was erased.
func (g *migration) copyDeadLetter(p *places, m *kgo.Record) (*kgo.Record, error) {
	if p.retried[record.Position{Partition: m.Partition, Offset: m.Offset}] || g.isErased(p, m) {
		return nil, nil
	}
	out := &kgo.Record{Topic: g.new.DeadLetters, Partition: m.Partition % g.counts[1], Key: m.Key, Value: m.Value, Timestamp: m.Timestamp}
	old, named := positionIn(m, record.HeaderPosition)
	// If its event is gone, the dead letter gets the first offset as its position (needRoom).
	at := record.Position{Partition: record.Partition(m.Key, g.counts[1])}
	if named {
		if g.isThreads(m.Key, old.Partition) {
			at.Offset, _ = p.threads[string(m.Key)].at(old.Offset)
		} else if other := p.others[old]; other.Partition >= 0 {
			at = other
		}
		out.Partition = at.Partition
	}
	for _, h := range m.Headers {
		switch h.Key {
		case record.HeaderCopiedFrom:
			continue
		case record.HeaderPosition:
			h.Value = []byte(at.String())
		}
		out.Headers = append(out.Headers, h)
	}
	return out, nil
}

// spans returns the offsets of a topic of either set. After quiet, the old set's topics end at the ends that quiet found.
func (g *migration) spans(ctx context.Context, topic string) (map[int32]kafka.Span, error) {
	spans, err := kafka.Spans(ctx, g.adm, topic)
	if err != nil {
		return nil, err
	}
	for p, end := range g.ends[topic] {
		spans[p] = kafka.Span{Start: spans[p].Start, End: min(end, spans[p].End)}
	}
	return spans, nil
}

// all reads a whole topic, partition by partition.
func (g *migration) all(ctx context.Context, cfg kafka.Config, topic string) iter.Seq2[*kgo.Record, error] {
	return func(yield func(*kgo.Record, error) bool) {
		spans, err := g.spans(ctx, topic)
		if err != nil {
			yield(nil, err)
			return
		}
		done, total := 0, 0
		for _, s := range spans {
			total += int(s.End - s.Start)
		}
		for m, err := range kafka.Scan(ctx, cfg, topic, spans) {
			if done++; g.Progress != nil && done%chunkRecords == 0 {
				g.Progress("reading "+topic, done, total)
			}
			if !yield(m, err) || err != nil {
				return
			}
		}
	}
}

// latest reads the latest record of each key of a compacted topic, tombstones included. It keeps the keys of one partition in memory.
func (g *migration) latest(ctx context.Context, cfg kafka.Config, topic string) iter.Seq2[*kgo.Record, error] {
	return func(yield func(*kgo.Record, error) bool) {
		spans, err := g.spans(ctx, topic)
		if err != nil {
			yield(nil, err)
			return
		}
		for p := range int32(len(spans)) {
			last := map[string]int64{}
			for m, err := range kafka.Scan(ctx, cfg, topic, map[int32]kafka.Span{p: spans[p]}) {
				if err != nil {
					yield(nil, err)
					return
				}
				last[string(m.Key)] = m.Offset
			}
			for m, err := range kafka.Scan(ctx, cfg, topic, map[int32]kafka.Span{p: spans[p]}) {
				if err != nil {
					yield(nil, err)
					return
				}
				if last[string(m.Key)] == m.Offset && !yield(m, nil) {
					return
				}
			}
		}
	}
}

// readBytes limits one answer of a broker, compressed. Unpacked, events of one stream are 20 times larger, and the client keeps all of
// them until they are read.
const readBytes = 2 << 20

// reading returns the configuration with a limit on the answers to readers.
func reading(cfg kafka.Config, limit int32) kafka.Config {
	more := cfg.Options
	cfg.Options = func() (opts []kgo.Opt) {
		if more != nil {
			opts = more()
		}
		return append(opts, kgo.FetchMaxBytes(limit), kgo.FetchMaxPartitionBytes(limit))
	}
	return cfg
}
