package tail

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ring holds the latest records of one partition, in offset order and with an index by thread. It has no gap except for records that
// Config.Keep leaves out.
type ring struct {
	// records are those at the offsets from start up to, but not including, next.
	start, next int64
	since       time.Time // no record that is not older has left the ring
	records     []*kgo.Record
	threads     map[string]*thread // by record key
	bytes       int
}

// thread is the part of a ring that belongs to one thread. It exists while it has records or readers.
type thread struct {
	records []*kgo.Record
	// evicted is the offset after the last record of the thread that has left the ring.
	evicted int64
	readers map[*Reader]struct{}
}

func newRing(start int64) *ring {
	return &ring{start: start, next: start, threads: map[string]*thread{}}
}

// thread returns the thread of a key, and makes it if it is new.
func (g *ring) thread(key string) *thread {
	t := g.threads[key]
	if t == nil {
		t = &thread{}
		g.threads[key] = t
	}
	return t
}

// add appends the next record of the partition. It ignores a record below next, which the ring had before.
func (g *ring) add(m *kgo.Record) *thread {
	if m.Offset < g.next {
		return nil
	}
	g.next = m.Offset + 1
	if m.Attrs.IsControl() {
		return nil
	}
	t := g.threads[string(m.Key)]
	if t == nil {
		t = g.thread(string(m.Key))
	}
	t.records = append(t.records, m)
	g.records = append(g.records, m)
	g.bytes += size(m)
	return t
}

// skip passes over the next record of the partition without keeping it.
func (g *ring) skip(m *kgo.Record) { g.next = max(g.next, m.Offset+1) }

// evict drops the oldest records until at most limit bytes are left.
func (g *ring) evict(limit int) {
	for g.bytes > limit && len(g.records) > 0 {
		m := pop(&g.records)
		g.bytes -= size(m)
		g.start = m.Offset + 1
		if m.Timestamp.After(g.since) {
			g.since = m.Timestamp
		}
		t := g.threads[string(m.Key)]
		pop(&t.records)
		t.evicted = m.Offset + 1
		g.drop(string(m.Key), t)
	}
}

// drop removes a thread that has neither records nor readers.
func (g *ring) drop(key string, t *thread) {
	if len(t.records) == 0 && len(t.readers) == 0 {
		delete(g.threads, key)
	}
}

// pop removes the first record of a list. The list's memory is freed when append moves it.
func pop(list *[]*kgo.Record) *kgo.Record {
	m := (*list)[0]
	(*list)[0] = nil
	*list = (*list)[1:]
	return m
}

// from returns records of the thread from an offset on: up to limit bytes, and at least one record if there is any.
func (t *thread) from(offset int64, limit int) []*kgo.Record {
	i, _ := slices.BinarySearchFunc(t.records, offset, func(m *kgo.Record, offset int64) int { return int(m.Offset - offset) })
	all := t.records[i:]
	n, bytes := 0, 0
	for n < len(all) && (n == 0 || bytes+size(all[n]) <= limit) {
		bytes += size(all[n])
		n++
	}
	return slices.Clone(all[:n])
}

// size is what a record counts in the ring: key, value and an estimate of the rest.
func size(m *kgo.Record) int { return len(m.Key) + len(m.Value) + recordOverhead }

// recordOverhead estimates the memory of a record besides its key and value: the struct, its headers and its entries in two
// slices.
const recordOverhead = 500
