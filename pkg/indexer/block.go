package indexer

import (
	"bytes"
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
	written   bool // it becomes a row
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

// block collects what is written together. It does not change once the writer has it.
//
// Of several records of one run the newest one stays: a row is a pure function of one record, and the store would drop
// the others. A tombstone stays as well, also where the run's id came again behind it: it says that older rows go, the
// newer record does not. Of erasures of a thread the newest stays.
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

// full reports whether a record of that size would take the block over its limits. A block has at least one record.
func (b *block) full(size int64, maxRecords int, maxBytes int64) bool {
	return len(b.entries) > 0 && (len(b.entries) >= maxRecords || b.bytes+size > maxBytes)
}

// rowBytes is about what one row costs beside its text, in memory and on the server: a record of half a megabyte may
// hold 200,000 messages. The row of a run has some 60 columns and counts as runRows.
const (
	rowBytes = 256
	runRows  = 8
)

// sizeOf is what the entry of a record adds to a block.
func sizeOf(e store.Entry, r *kgo.Record) int64 {
	rows := 1
	if e.Run != nil {
		calls := bytes.Count(r.Value, []byte(`"arguments":`)) // a tool call is a row too, and one message may hold thousands
		rows = runRows + len(e.Run.Messages) + len(e.Run.InputMessages) + calls
	}
	return int64(len(r.Key) + len(r.Value) + rowBytes*rows)
}

// add takes in an entry. Records of a run come in the order of their versions, since they lie on one partition.
func (b *block) add(n entry) {
	if n.Position != nil {
		b.positions[n.Partition] = n
		return
	}
	k := runKey{n.Tenant, n.ThreadID, n.RunID}
	b.bytes += n.bytes
	if i, ok := b.index[k]; ok && (n.Tombstone() || !b.entries[i].Tombstone()) {
		b.bytes -= b.entries[i].bytes
		b.entries[i] = n
		return
	}
	b.index[k] = len(b.entries)
	b.entries = append(b.entries, n)
}

// kept returns the block without what was read under an assignment that has ended.
func (b *block) kept(current func(partition int32, epoch int64) bool) *block {
	kept := newBlock()
	kept.opened = b.opened
	for _, e := range b.entries {
		if current(e.Partition, e.epoch) {
			kept.add(e)
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
	return kept
}

// ordered returns the entries as they are to be written: erasures come behind all records of runs, since they say that
// those are there, and then positions, which say the same of erasures too.
func (b *block) ordered() []store.Entry {
	ordered := make([]store.Entry, 0, len(b.entries)+len(b.positions))
	for _, erasures := range []bool{false, true} {
		for _, e := range b.entries {
			if (e.Erasure != nil) == erasures {
				ordered = append(ordered, e.Entry)
			}
		}
	}
	for _, p := range slices.Sorted(maps.Keys(b.positions)) {
		ordered = append(ordered, b.positions[p].Entry)
	}
	return ordered
}
