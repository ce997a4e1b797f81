package partition

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// tell adds a position record to the effects where it moves what readers of skein.runs can know: that no
// event below known is missing there. Run records alone do not say so: a repeat, a dead letter or a
// late event changes none, and what the record of one tenant's run says is nothing to another tenant.
//
// known is P, or less: an event of an open run that has no record yet, or that was shown as abandoned
// and goes on, is in no record, and nobody who reads skein.runs can know that it is missing. (An open
// run that is shown as open holds nothing back: its own record says how far it is told.) So known never
// goes back: such an event lies at or above the P of the time before it came.
//
// Beside known it says C, P and the partition count, as the group has them from the same transaction: should the group be
// deleted, or its offsets expire, the partition goes on from there (position.resume).
//
// The record is the last of the partition in its transaction: whoever has read up to it has read all
// that it speaks of. It is never the reason for a transaction. Between C and P, where a fresh process
// does not know all open runs yet, nothing is told; what the last process has told by then is at least
// C, and at most P.
func (p *Processor) tell(b *Effects, known int64) {
	b.told = p.told
	if !b.Changed || p.skip != nil || p.next < p.progress.Processed {
		return
	}
	b.told = max(p.told, known)
	reached := record.Reached{
		Next: b.told, Events: p.store.Followed().EventsID,
		Committed: b.Progress.Committed, Decided: b.Progress.Processed, Partitions: b.Progress.Partitions,
		StreamTime: b.Progress.StreamTime, Gap: b.Progress.Gap,
	}
	if reached == p.store.Followed().Progress || reached.Decided == 0 {
		return
	}
	b.Outputs = append(b.Outputs, Output{Kind: outputPosition, entry: runstore.Entry{Progress: &reached}, Record: &kgo.Record{
		Topic: p.topics.Runs, Partition: p.id, Key: []byte(record.PositionKey), Value: record.EncodePosition(reached),
		Headers: kafka.Headers(record.Headers{Version: record.Version, Kind: record.KindPosition, Seq: -1}),
	}})
}
