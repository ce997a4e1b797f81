package indexer

import (
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/store"
)

// runKey names a run, or, without one, the erasure of a thread.
type runKey struct{ tenant, thread, run string }

// entry is an entry of a block with what it weighs, and under which assignment it was read.
type entry struct {
	store.Entry
	bytes     int64
	epoch     int64
	timestamp time.Time
}

// progress is how far a partition was read: next is the offset after the last record, skipped ones
// counted.
type progress struct {
	next        int64
	leaderEpoch int32
	epoch       int64
}

// block collects what is written together. Of several records of one run the newest one stays: a
// row is a pure function of one record, and the store would drop the others. A tombstone stays as well,
// also where the run's id came again behind it: it says that older rows go, the newer record does not.
// Of erasures of a thread the newest stays.
type block struct {
	entries []entry
	index   map[runKey]int
	bytes   int64
	// positions are the newest position of each partition. They are written after all entries, as
	// they say that those are there.
	positions map[int32]entry
	// progress is what may be committed once the entries are durable.
	progress map[int32]progress
	// opened is when the first record came in; zero while there is none.
	opened time.Time
}

func newBlock() *block {
	return &block{index: map[runKey]int{}, positions: map[int32]entry{}, progress: map[int32]progress{}}
}

// read notes that a record was read, whatever becomes of it.
func (b *block) read(r *kgo.Record, epoch int64, now time.Time) {
	if b.opened.IsZero() {
		b.opened = now
	}
	b.progress[r.Partition] = progress{next: r.Offset + 1, leaderEpoch: r.LeaderEpoch, epoch: epoch}
}

// add takes in the entry of a record. Records of a run come in the order of their versions, since
// they lie on one partition.
func (b *block) add(e store.Entry, r *kgo.Record, epoch int64) {
	size := int64(len(r.Key) + len(r.Value))
	n := entry{Entry: e, bytes: size, epoch: epoch, timestamp: r.Timestamp}
	if e.Position != nil {
		b.positions[e.Partition] = n
		return
	}
	k := runKey{e.Tenant, e.ThreadID, e.RunID}
	b.bytes += size
	if i, ok := b.index[k]; ok && (e.Tombstone() || !b.entries[i].Tombstone()) {
		b.bytes -= b.entries[i].bytes
		b.entries[i] = n
		return
	}
	b.index[k] = len(b.entries)
	b.entries = append(b.entries, n)
}

// keep drops what was read under an assignment that has ended.
func (b *block) keep(current func(partition int32, epoch int64) bool) {
	kept := newBlock()
	kept.opened = b.opened
	for _, e := range b.entries {
		if current(e.Partition, e.epoch) {
			kept.index[runKey{e.Tenant, e.ThreadID, e.RunID}] = len(kept.entries)
			kept.entries = append(kept.entries, e)
			kept.bytes += e.bytes
		}
	}
	for p, e := range b.positions {
		if current(p, e.epoch) {
			kept.positions[p] = e
		}
	}
	for p, at := range b.progress {
		if current(p, at.epoch) {
			kept.progress[p] = at
		}
	}
	*b = *kept
}

// parts splits the entries into runs of at most that many records and bytes, each with at least one
// record: a poll may give more than was asked for. Erasures come behind all records of runs, since they
// say that those are there. The positions, few and small, are in the last one.
func (b *block) parts(maxRecords int, maxBytes int64) [][]store.Entry {
	var out [][]store.Entry
	var part []store.Entry
	var bytes int64
	entries := slices.Clone(b.entries)
	slices.SortStableFunc(entries, func(x, y entry) int {
		switch {
		case (x.Erasure == nil) == (y.Erasure == nil):
			return 0
		case x.Erasure == nil:
			return -1
		default:
			return 1
		}
	})
	for _, e := range entries {
		if len(part) > 0 && (len(part) == maxRecords || bytes+e.bytes > maxBytes) {
			out, part, bytes = append(out, part), nil, 0
		}
		part, bytes = append(part, e.Entry), bytes+e.bytes
	}
	for _, p := range slices.Sorted(maps.Keys(b.positions)) {
		part = append(part, b.positions[p].Entry)
	}
	if len(part) > 0 {
		out = append(out, part)
	}
	return out
}
