package migrate

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// Proof is the result of comparing the two sets after the copy.
type Proof struct {
	// Events is the number of raw events of the old set, Threads the number of their keys. For each thread the number of events, a hash of
	// their keys, values, headers, times and old positions, and their order are compared.
	Events  int `json:"events"`
	Threads int `json:"threads"`
	// Runs and Snapshots are the numbers of latest records, compared byte by byte. Of a run's positions, only those of the first and last
	// event are compared: they must be copies of the old events. Erasures is the number of records of erasures whose event exists, Details
	// that of titles and marks of threads.
	Runs      int `json:"runs"`
	Erasures  int `json:"erasures"`
	Details   int `json:"details"`
	Snapshots int `json:"snapshots"`
	// DeadLetters were copied. Retried, which were published again, and Erased, whose threads were erased since, were not.
	DeadLetters int `json:"deadLetters"`
	Retried     int `json:"retried"`
	Erased      int `json:"erased"`
	// Differences are descriptions for people, at most 100.
	Differences []string `json:"differences"`
}

const maxDifferences = 100

func (p *Proof) differ(format string, args ...any) {
	if len(p.Differences) < maxDifferences {
		p.Differences = append(p.Differences, fmt.Sprintf(format, args...))
	}
}

// digest has the number of records and the sum of their hashes, which does not depend on their order.
type digest struct {
	n    int
	sum  [2]uint64
	last int64 // the old offset of the last one added
}

func (d *digest) add(h [32]byte) {
	d.n++
	for i := range d.sum {
		d.sum[i] += binary.BigEndian.Uint64(h[8*i:])
	}
}

// digestOf returns the digest of a record's thread.
func digestOf(threads map[string]*digest, m *kgo.Record) *digest {
	d := threads[string(m.Key)]
	if d == nil {
		d = &digest{last: -1}
		threads[string(m.Key)] = d
	}
	return d
}

func (g *migration) prove(ctx context.Context, places *places) (*Proof, error) {
	p := &Proof{Differences: []string{}}
	if err := g.proveEvents(ctx, p); err != nil {
		return nil, err
	}
	runs, err := g.proveLatest(ctx, p, g.old.Runs, g.new.Runs,
		func(m *kgo.Record) ([]byte, error) {
			kind, text, err := textOf(m, func(thread string, raw record.Raw) [3]int64 { return places.wanted(thread, raw, g.counts[1]) })
			if err == nil && kind == record.KindThread {
				p.Details++
			}
			if err != nil || kind != record.KindErase {
				return text, err
			}
			below, err := record.DecodeErased(m.Value)
			if err != nil {
				return nil, err
			}
			at, ok := places.threads[string(m.Key)].at(below - 1)
			if !ok {
				return nil, nil
			}
			p.Erasures++
			return record.EncodeErased(at + 1), nil
		},
		func(m *kgo.Record) ([]byte, error) {
			kind, text, err := textOf(m, func(_ string, raw record.Raw) [3]int64 { return places.named(m.Partition, raw) })
			if err != nil || kind != record.KindErase {
				return text, err
			}
			below, err := record.DecodeErased(m.Value)
			if err == nil && places.gone(m.Partition, below-1) {
				return nil, nil // copied by an earlier call
			}
			return text, err
		})
	if err != nil {
		return nil, err
	}
	p.Runs = runs - p.Erasures - p.Details
	value := func(m *kgo.Record) ([]byte, error) { return m.Value, nil }
	if p.Snapshots, err = g.proveLatest(ctx, p, g.old.Snapshots, g.new.Snapshots, value, value); err != nil {
		return nil, err
	}
	for m, err := range g.all(ctx, g.from, g.old.DeadLetters) {
		if err != nil {
			return nil, err
		}
		switch {
		case places.retried[record.Position{Partition: m.Partition, Offset: m.Offset}]:
			p.Retried++
		case g.isErased(places, m):
			p.Erased++
		default:
			p.DeadLetters++
		}
	}
	there := 0
	for _, err := range g.all(ctx, g.to, g.new.DeadLetters) {
		if err != nil {
			return nil, err
		}
		there++
	}
	if there != p.DeadLetters {
		p.differ("%d dead letters, %d in the new set", p.DeadLetters, there)
	}
	return p, nil
}

func (g *migration) proveEvents(ctx context.Context, p *Proof) error {
	threads := map[string]*digest{}
	starts, err := kafka.Spans(ctx, g.adm, g.old.Events)
	if err != nil {
		return err
	}
	for m, err := range g.all(ctx, g.from, g.old.Events) {
		if err != nil {
			return err
		}
		if g.partition(m) < 0 || m.Offset < starts[m.Partition].Start {
			continue
		}
		digestOf(threads, m).add(hashOf(m, record.Position{Partition: m.Partition, Offset: m.Offset}))
		p.Events++
	}
	p.Threads = len(threads)
	copied := map[string]*digest{}
	for m, err := range g.all(ctx, g.to, g.new.Events) {
		if err != nil {
			return err
		}
		from, ok := positionIn(m, record.HeaderCopiedFrom)
		if !ok || from.Offset < starts[from.Partition].Start { // it has expired in the old set
			continue
		}
		d := digestOf(copied, m)
		d.add(hashOf(m, from))
		own := record.Partition(m.Key, g.counts[1])
		if parts, err := record.SplitKey(string(m.Key)); err == nil && len(parts) == 2 && (m.Partition == own) != g.isThreads(m.Key,
			from.Partition) {
			p.differ("events of thread %q: %v is on partition %d, the thread on %d", m.Key, from, m.Partition, own)
		}
		if g.isThreads(m.Key, from.Partition) {
			if from.Offset <= d.last {
				p.differ("events of thread %q: %v is out of order", m.Key, from)
			}
			d.last = from.Offset
		}
	}
	for _, key := range slices.Sorted(maps.Keys(threads)) {
		a, b := threads[key], cmp.Or(copied[key], &digest{})
		if a.n != b.n || a.sum != b.sum {
			p.differ("events of thread %q: %d, %d in the new set", key, a.n, b.n)
		}
		delete(copied, key)
	}
	for _, key := range slices.Sorted(maps.Keys(copied)) {
		p.differ("events of thread %q: none, %d in the new set", key, copied[key].n)
	}
	return nil
}

// hashOf hashes a raw record and its old position, without the headers that the copy writes.
func hashOf(m *kgo.Record, from record.Position) [32]byte {
	var b []byte
	part := func(v []byte) { b = append(binary.AppendUvarint(b, uint64(len(v))), v...) }
	part([]byte(from.String()))
	part(m.Key)
	part(m.Value)
	b = binary.AppendVarint(b, m.Timestamp.UnixMilli())
	for _, h := range m.Headers {
		if h.Key != record.HeaderCopiedFrom && h.Key != record.HeaderRetryOf {
			part([]byte(h.Key))
			part(h.Value)
		}
	}
	return sha256.Sum256(b)
}

// proveLatest compares the latest record of each key, and returns the number of keys. The arguments was and is return the bytes to
// compare of an old and of a new record; nil leaves the record out.
func (g *migration) proveLatest(
	ctx context.Context, p *Proof, before, after string, was, is func(*kgo.Record) ([]byte, error),
) (int, error) {
	sums := map[string][32]byte{}
	for m, err := range g.latest(ctx, g.from, before) {
		if err != nil {
			return 0, err
		}
		if len(m.Value) == 0 {
			continue
		}
		b, err := was(m)
		if err != nil {
			return 0, fmt.Errorf("comparing %d:%d of %s: %w", m.Partition, m.Offset, before, err)
		}
		if b != nil {
			sums[string(m.Key)] = sha256.Sum256(b)
		}
	}
	n := len(sums)
	for m, err := range g.latest(ctx, g.to, after) {
		if err != nil {
			return 0, err
		}
		if len(m.Value) == 0 {
			continue
		}
		b, err := is(m)
		if err != nil {
			return 0, fmt.Errorf("comparing %d:%d of %s: %w", m.Partition, m.Offset, after, err)
		}
		if b == nil {
			continue
		}
		if sum, ok := sums[string(m.Key)]; !ok || sum != sha256.Sum256(b) {
			p.differ("%s: the record of %q", after, m.Key)
		}
		delete(sums, string(m.Key))
	}
	for _, key := range slices.Sorted(maps.Keys(sums)) {
		p.differ("%s: the record of %q is missing", after, key)
	}
	return n, nil
}

// textOf returns the bytes to compare of a record of skein.runs: of a run, with its positions replaced by those that place returns; of an
// erasure and of a detail, its value. It returns nil for other kinds, which belong to one set.
func textOf(m *kgo.Record, place func(thread string, raw record.Raw) [3]int64) (record.Kind, []byte, error) {
	headers, err := record.ParseHeaders(m.Headers)
	switch {
	case err != nil:
		return "", nil, err
	case headers.Kind == record.KindErase, headers.Kind == record.KindThread:
		return headers.Kind, m.Value, nil
	case headers.Kind != record.KindRun:
		return headers.Kind, nil, nil
	}
	r, err := record.DecodeRun(m.Value)
	if err != nil {
		return headers.Kind, nil, err
	}
	thread, err := record.ThreadKey(r.Tenant, r.ThreadID)
	if err != nil {
		return headers.Kind, nil, err
	}
	old, late := r.Raw, []int64(nil)
	if r.LateError != nil {
		at := r.LateError.Offset
		of := place(thread, record.Raw{Partition: old.Partition, First: at, Next: at + 1})
		late, r.LateError.Offset = of[2:], 0
	}
	r.Raw.Partition, r.Raw.First, r.Raw.Next, r.Raw.Ranges = 0, 0, 0, nil
	cut := old
	if r.Cut != nil {
		cut.Next, r.Cut.Next = r.Cut.Next, 0
	}
	value, err := record.EncodeRun(r)
	if r.Cut != nil {
		value = bytes.ReplaceAll(value, reference(cut), nil)
	}
	if r.Truncated {
		value = bytes.ReplaceAll(value, reference(old), nil)
	}
	return headers.Kind, fmt.Append(value, place(thread, old), late), err
}
