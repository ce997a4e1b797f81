package indexer

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/store"
)

// runKey identifies a run; without one the erasure of a thread, or the detail of a thread.
type runKey struct{ tenant, thread, run, detail string }

// entry is an entry of a block.
type entry struct {
	store.Entry
	bytes     int64
	written   bool  // it becomes a row
	epoch     int64 // of the assignment under which it was read
	timestamp time.Time
}

// progress is how far a partition was read. next is the offset after the last record, including skipped ones.
type progress struct {
	next        int64
	leaderEpoch int32
	epoch       int64
}

// block collects entries that are written together. It does not change after it is handed to the writer.
//
// Of several records of one run only the newest is written: a row is a pure function of one record, and the store would drop the
// others. A tombstone is written even if the run's id came again after it, because only the tombstone deletes older rows. Of several
// erasures of a thread, and of several values of a detail, only the newest is written.
type block struct {
	entries []entry
	index   map[runKey]int
	bytes   int64
	// positions are the newest position of each partition. They are written after all entries: a position promises that earlier
	// records are in the store.
	positions map[int32]entry
	// progress may be committed once the entries are durable.
	progress map[int32]progress
	// opened is when the first record was added; zero before.
	opened time.Time
}

func newBlock() *block {
	return &block{index: map[runKey]int{}, positions: map[int32]entry{}, progress: map[int32]progress{}}
}

// read notes the progress of a partition, also for a record that becomes no entry.
func (b *block) read(r *kgo.Record, epoch int64, now time.Time) {
	if b.opened.IsZero() {
		b.opened = now
	}
	b.progress[r.Partition] = progress{next: r.Offset + 1, leaderEpoch: r.LeaderEpoch, epoch: epoch}
}

// full reports whether a record of that size would exceed the block's limits. An empty block is never full.
func (b *block) full(size int64, maxRecords int, maxBytes int64) bool {
	return len(b.entries) > 0 && (len(b.entries) >= maxRecords || b.bytes+size > maxBytes)
}

// rowBytes estimates the cost of a row without its text, in memory and on the server: a record of half a megabyte may have 200,000
// messages. The row of a run has some 60 columns and counts as runRows rows.
const (
	rowBytes = 256
	runRows  = 8
)

// sizeOf returns the size of a record's entry, in bytes, for MaxBytes.
func sizeOf(e store.Entry, r *kgo.Record) int64 {
	rows := 1
	if e.Run != nil {
		calls := bytes.Count(r.Value, []byte(`"arguments":`)) // a tool call is a row, and a message may have thousands
		rows = runRows + len(e.Run.Messages) + len(e.Run.InputMessages) + calls
	}
	return int64(len(r.Key) + len(r.Value) + rowBytes*rows)
}

// add adds an entry. Records of a run come in the order of their versions: they are on one partition.
func (b *block) add(n entry) {
	if n.Position != nil {
		b.positions[n.Partition] = n
		return
	}
	k := runKey{tenant: n.Tenant, thread: n.ThreadID, run: n.RunID}
	if n.Detail != nil {
		k.detail = n.Detail.Name
	}
	b.bytes += n.bytes
	if i, ok := b.index[k]; ok && (n.Tombstone() || !b.entries[i].Tombstone()) {
		b.bytes -= b.entries[i].bytes
		b.entries[i] = n
		return
	}
	b.index[k] = len(b.entries)
	b.entries = append(b.entries, n)
}

// kept returns the block without what was read under earlier assignments.
func (b *block) kept(current func(partition int32, epoch int64) bool) *block {
	kept := newBlock()
	kept.opened = b.opened
	for _, e := range b.entries {
		if current(e.Partition, e.epoch) {
			kept.add(e)
		}
	}
	maps.Copy(kept.positions, b.positions)
	maps.DeleteFunc(kept.positions, func(p int32, e entry) bool { return !current(p, e.epoch) })
	maps.Copy(kept.progress, b.progress)
	maps.DeleteFunc(kept.progress, func(p int32, at progress) bool { return !current(p, at.epoch) })
	return kept
}

// ordered returns the entries in the order of writing: records of runs and details, then erasures, then positions. Erasures and positions
// promise that the entries before them are in the store.
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
