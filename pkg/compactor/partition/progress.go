package partition

import (
	"fmt"

	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// Progress is what the group has committed for one partition: an offset, and in its metadata the processed offset and more.
type Progress struct {
	// Committed is the committed offset: the next record that open runs need from the log.
	Committed int64
	// Processed is the processed offset: everything below it was decided. It is never below Committed.
	Processed int64
	// Partitions is the partition count that both belong to.
	Partitions int32
	// StreamTime is the partition's stream time at Committed, in milliseconds since 1970; 0 if it is not known.
	StreamTime int64
	// Gap is the last gap in the raw events: see ledger.mayHaveBegunInGap.
	Gap record.Gap
	// Signed is that of record.Progress.
	Signed int64
	// noMetadata means that the group has no metadata, so Processed is a guess until the progress record confirms it (reconcile).
	noMetadata bool
}

// Metadata returns the metadata to commit with the offset.
func (p Progress) Metadata() string {
	if p.noMetadata { // the next process that opens the partition has to reconcile, too
		return ""
	}
	return record.Progress{Processed: p.Processed, Partitions: p.Partitions, StreamTime: p.StreamTime, Gap: p.Gap,
		Signed: p.Signed}.Metadata()
}

// ParseProgress parses an offset and its metadata from the group. Without metadata (there is no offset, or a tool has set it) everything
// below the offset counts as processed, unless the progress record has more. Metadata of an unknown form are an error: guessing the
// processed offset would decide events twice.
func ParseProgress(offset int64, metadata string, partitions int32) (Progress, error) {
	p := Progress{Committed: max(offset, 0), Partitions: partitions}
	p.Processed = p.Committed
	if metadata == "" {
		p.noMetadata = true
		return p, nil
	}
	m, err := record.ParseMetadata(metadata)
	if err != nil {
		return Progress{}, err
	}
	p.Processed, p.Partitions, p.StreamTime, p.Gap, p.Signed = m.Processed, m.Partitions, m.StreamTime, m.Gap, m.Signed
	if p.Processed < p.Committed {
		return Progress{}, fmt.Errorf("reading offset metadata %q: the processed offset is below the committed offset %d", metadata, offset)
	}
	if p.Partitions != partitions {
		return Progress{}, fmt.Errorf("%w: the committed offsets belong to %d partitions, the topics have %d",
			kafka.ErrPartitionCounts, p.Partitions, partitions)
	}
	return p, nil
}

// reconcile returns the progress to resume from, given the last progress record. If the group has nothing (it was deleted, its offsets
// expired) or less than was committed (its offset was set back), the progress record counts. Resuming from the group's offset would then
// decide events twice.
func (p Progress) reconcile(readable record.Progress) (Progress, error) {
	hasMetadata := !p.noMetadata
	p.noMetadata = false
	switch {
	case readable.Partitions == 0: // there is no progress record
		return p, nil
	case hasMetadata && readable.Processed == p.Processed: // they agree
		return p, nil
	case readable.Processed < p.Processed: // the group's offset was set higher, or the last transactions wrote no progress record
		return p, nil
	case readable.Partitions != p.Partitions:
		return Progress{}, fmt.Errorf("%w: the positions on skein.runs belong to %d partitions, the topics have %d",
			kafka.ErrPartitionCounts, readable.Partitions, p.Partitions)
	}
	return Progress{
		Committed: readable.Committed, Processed: readable.Processed, Partitions: p.Partitions,
		StreamTime: readable.StreamTime, Gap: readable.Gap, Signed: readable.Signed,
	}, nil
}

// wasSetHigher reports whether a tool has set the group's offset higher than what was committed. Tools set no metadata; metadata ahead of
// the progress record are the compactor's own, as not every transaction writes that record (addProgressRecord). Events in between are
// never folded, and it is not known which open runs had any.
func (p Progress) wasSetHigher(readable record.Progress) bool {
	return p.noMetadata && readable.Partitions != 0 && readable.Processed < p.Processed
}

// addProgressRecord adds a progress record to the effects if it has news for readers of skein.runs. The record tells them that no event
// below its Next is missing there. Run records alone do not show that: a repeat, a dead letter or a late event changes none, and a tenant
// cannot see the records of others.
//
// The argument readable is the processed offset or, if that is lower, the first unwritten event of an open run without a record, or with
// one that shows it as expired, as readers cannot see that this event is missing. (The record of an open run shows up to which event it
// goes.) When such an event comes, it lies at or above the processed offset, so readable never goes back.
//
// The record also has the committed offset, the processed offset and the partition count, as the same transaction commits them to the
// group. If the group is deleted or its offsets expire, the partition resumes from this copy (Progress.reconcile).
//
// The progress record is the partition's last record in its transaction, so a reader that has read it has read all that it covers. It alone
// is no reason for a transaction. Below the processed offset none is written, as a new process does not know all open runs yet.
func (l *ledger) addProgressRecord(b *Effects, readable int64) {
	if !b.Changed || l.gap != nil || l.rebuilds() {
		return
	}
	last := l.store.Followed()
	reached := record.Progress{
		Next: max(last.Progress.Next, readable), Events: last.EventsID,
		Committed: b.Progress.Committed, Processed: b.Progress.Processed, Partitions: b.Progress.Partitions,
		StreamTime: b.Progress.StreamTime, Gap: b.Progress.Gap, Signed: b.Progress.Signed,
	}
	if reached == last.Progress || reached.Processed == 0 {
		return
	}
	b.Outputs = append(b.Outputs, Output{
		Kind: outputProgress, entry: runstore.Entry{Progress: &reached},
		Record: l.record(l.topics.Runs, record.ProgressKey, record.EncodeProgress(reached), record.KindProgress, ""),
	})
}
