package partition

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// Progress is what one partition has committed: the group's offset and, in its metadata, the processed offset with
// what belongs to it.
type Progress struct {
	// Committed is the committed offset: the next record that open runs need from the log.
	Committed int64
	// Processed is the processed offset: everything below it was decided. It is never below Committed.
	Processed int64
	// Partitions is the partition count that both belong to.
	Partitions int32
	// StreamTime is the partition's stream time at Committed, in milliseconds since 1970; 0 if it is not known.
	StreamTime int64
	// Gap is where raw events were gone last: see Processor.mayHaveBegunInGap.
	Gap record.Gap
	// noMetadata: the group holds no metadata, so that Processed is a guess until the progress record confirms it (reconcile).
	noMetadata bool
}

// Metadata is the text that goes with the committed offset into the group's offsets.
func (p Progress) Metadata() string {
	if p.noMetadata { // the next process that opens the partition has to reconcile, too
		return ""
	}
	return record.AppendGap(record.AppendStreamTime(record.EncodeProcessed(p.Processed, p.Partitions), p.StreamTime), p.Gap)
}

// ParseProgress reads what the group holds. Without metadata (no offset yet, an expired one, or one that a tool has
// set) everything below the offset counts as processed, if the progress record does not know better. Metadata of an
// unknown form are an error: guessing the processed offset would decide events twice.
func ParseProgress(offset int64, metadata string, partitions int32) (Progress, error) {
	p := Progress{Committed: max(offset, 0), Partitions: partitions}
	p.Processed = p.Committed
	if metadata == "" {
		p.noMetadata = true
		return p, nil
	}
	var err error
	if p.Processed, p.Partitions, err = record.DecodeProcessed(metadata); err != nil {
		return Progress{}, err
	}
	p.StreamTime, p.Gap = record.StreamTime(metadata), record.GapOf(metadata)
	if p.Processed < p.Committed {
		return Progress{}, fmt.Errorf("reading offset metadata %q: the position is below the committed offset %d", metadata, offset)
	}
	if p.Partitions != partitions {
		return Progress{}, fmt.Errorf("%w: the committed positions belong to %d partitions, the topics have %d", kafka.ErrPartitionCounts, p.Partitions, partitions)
	}
	return p, nil
}

// reconcile returns the progress to resume from. The group may hold nothing (it was deleted, its offsets expired) or less
// than was committed (its offset was set back): then the progress record counts, which each transaction that moved the
// processed offset has written. Resuming from the group's offset would decide events twice.
func (p Progress) reconcile(readable record.Progress) (Progress, error) {
	said := !p.noMetadata
	p.noMetadata = false
	switch {
	case readable.Partitions == 0: // there is no progress record
		return p, nil
	case said && readable.Processed == p.Processed: // they agree
		return p, nil
	case readable.Processed < p.Processed: // the group's offset was set higher, or the last transactions wrote no progress record
		return p, nil
	case readable.Partitions != p.Partitions:
		return Progress{}, fmt.Errorf("%w: the positions on skein.runs belong to %d partitions, the topics have %d", kafka.ErrPartitionCounts, readable.Partitions, p.Partitions)
	}
	return Progress{Committed: readable.Committed, Processed: readable.Processed, Partitions: p.Partitions, StreamTime: readable.StreamTime, Gap: readable.Gap}, nil
}

// wasSetHigher reports whether a tool has set the group's offset higher than what was committed last. Tools set no metadata; metadata
// ahead of the progress record are the compactor's own, as not every transaction writes that record (addProgressRecord). Events
// in between are never folded, and it is not known which open runs had any.
func (p Progress) wasSetHigher(readable record.Progress) bool {
	return p.noMetadata && readable.Partitions != 0 && readable.Processed < p.Processed
}

// addProgressRecord adds a progress record to the effects if it tells readers of skein.runs more: that no event below its Next is
// missing there. Run records alone do not: a repeat, a dead letter or a late event changes none, and the record of one tenant's run
// tells another tenant nothing.
//
// readable is the processed offset, or less: the first unwritten event of an open run that has no record yet, or whose record shows it
// as expired, since readers cannot see that it is missing. (A run whose record shows it as open does not count: the record says up to
// which event it goes.) Such an event lies at or above the processed offset before it came, so readable never goes back.
//
// The record also holds the committed offset, the processed offset and the partition count, as the group has them from the same
// transaction. If the group is deleted or its offsets expire, the partition resumes from them (Progress.reconcile).
//
// It is the partition's last record in its transaction, so a reader that has read it has read all that it covers. It alone is no reason for a
// transaction. Below the processed offset none is written, as a new process does not know all open runs yet; the last one has at least
// the committed offset, and at most the processed one.
func (l *ledger) addProgressRecord(b *Effects, readable int64) {
	if !b.Changed || l.gap != nil || l.next < l.progress.Processed {
		return
	}
	last := l.store.Followed()
	reached := record.Progress{
		Next: max(last.Progress.Next, readable), Events: last.EventsID,
		Committed: b.Progress.Committed, Processed: b.Progress.Processed, Partitions: b.Progress.Partitions,
		StreamTime: b.Progress.StreamTime, Gap: b.Progress.Gap,
	}
	if reached == last.Progress || reached.Processed == 0 {
		return
	}
	b.Outputs = append(b.Outputs, Output{Kind: outputProgress, entry: runstore.Entry{Progress: &reached}, Record: &kgo.Record{
		Topic: l.topics.Runs, Partition: l.id, Key: []byte(record.ProgressKey), Value: record.EncodeProgress(reached),
		Headers: kafka.Headers(record.Headers{Version: record.Version, Kind: record.KindProgress, Seq: -1}),
	}})
}
