package migrate

import (
	"bytes"
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

// Proof is what was compared between the two sets once the copy was complete.
type Proof struct {
	// Events are the raw events of the old set, Threads their keys. Of each thread the number and a hash
	// over keys, values, headers, times and old positions are compared, and the order.
	Events  int `json:"events"`
	Threads int `json:"threads"`
	// Runs and Snapshots are the latest records, compared to the byte but for positions.
	Runs      int `json:"runs"`
	Snapshots int `json:"snapshots"`
	// DeadLetters were copied; Retried were not, as they were published again.
	DeadLetters int `json:"deadLetters"`
	Retried     int `json:"retried"`
	// Differences name what is not the same: nothing, unless something went wrong. At most 100.
	Differences []string `json:"differences"`
}

const maxDifferences = 100

func (p *Proof) differ(format string, args ...any) {
	if len(p.Differences) < maxDifferences {
		p.Differences = append(p.Differences, fmt.Sprintf(format, args...))
	}
}

// digest is a number of records and the sum of their hashes, in whatever order.
type digest struct {
	n    int
	sum  [2]uint64
	last int64 // the latest one's old offset
}

func (d *digest) add(h [32]byte) {
	d.n++
	for i := range d.sum {
		d.sum[i] += binary.BigEndian.Uint64(h[8*i:])
	}
}

func (g *migration) prove(ctx context.Context, places *places) (*Proof, error) {
	p := &Proof{Differences: []string{}}
	if err := g.proveEvents(ctx, p); err != nil {
		return nil, err
	}
	var err error
	if p.Runs, err = g.proveLatest(ctx, p, g.old.Runs, g.new.Runs, withoutPlace); err != nil {
		return nil, err
	}
	if p.Snapshots, err = g.proveLatest(ctx, p, g.old.Snapshots, g.new.Snapshots, func(m *kgo.Record) ([]byte, error) { return m.Value, nil }); err != nil {
		return nil, err
	}
	for m, err := range g.all(ctx, g.from, g.old.DeadLetters) {
		if err != nil {
			return nil, err
		}
		if places.retried[record.Position{Partition: m.Partition, Offset: m.Offset}] {
			p.Retried++
		} else {
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
		d := threads[string(m.Key)]
		if d == nil {
			d = &digest{last: -1}
			threads[string(m.Key)] = d
		}
		d.add(hashOf(m, record.Position{Partition: m.Partition, Offset: m.Offset}))
		p.Events++
	}
	p.Threads = len(threads)
	copied := map[string]*digest{}
	for m, err := range g.all(ctx, g.to, g.new.Events) {
		if err != nil {
			return err
		}
		from, ok := positionIn(m, record.HeaderCopiedFrom)
		if !ok || from.Offset < starts[from.Partition].Start { // the old set has it no more
			continue
		}
		d := copied[string(m.Key)]
		if d == nil {
			d = &digest{last: -1}
			copied[string(m.Key)] = d
		}
		d.add(hashOf(m, from))
		if g.isThreads(m.Key, from.Partition) {
			if from.Offset <= d.last {
				p.differ("events of thread %q: %v is out of order", m.Key, from)
			}
			d.last = from.Offset
		}
	}
	for _, key := range slices.Sorted(maps.Keys(threads)) {
		a, b := threads[key], copied[key]
		if b == nil {
			b = &digest{}
		}
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

// hashOf is over all that a raw record says, and where it lay; what the copy itself writes is left out.
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

// proveLatest compares the latest records of each run or snapshot, as text makes them; nil is one that is
// not compared.
func (g *migration) proveLatest(ctx context.Context, p *Proof, before, after string, text func(*kgo.Record) ([]byte, error)) (int, error) {
	sums := map[string][32]byte{}
	for m, err := range g.latest(ctx, before) {
		if err != nil {
			return 0, err
		}
		b, err := text(m)
		if err != nil {
			return 0, fmt.Errorf("comparing %d:%d of %s: %w", m.Partition, m.Offset, before, err)
		}
		if b != nil {
			sums[string(m.Key)] = sha256.Sum256(b)
		}
	}
	n := len(sums)
	for m, err := range latestOf(ctx, g, g.to, after) {
		if err != nil {
			return 0, err
		}
		b, err := text(m)
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

// withoutPlace is a run record without what depends on the topic set.
func withoutPlace(m *kgo.Record) ([]byte, error) {
	headers, err := kafka.ParseHeaders(m.Headers)
	if err != nil || headers.Kind != record.KindRun {
		return nil, err
	}
	r, err := record.DecodeRun(m.Value)
	if err != nil {
		return nil, err
	}
	old := reference(r.Raw)
	r.Raw.Partition, r.Raw.First, r.Raw.Next, r.Raw.Ranges = 0, 0, 0, nil
	value, err := record.EncodeRun(r)
	if r.Truncated {
		value = bytes.ReplaceAll(value, old, nil)
	}
	return value, err
}
