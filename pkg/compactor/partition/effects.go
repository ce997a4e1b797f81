package partition

import (
	"cmp"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/record"
)

// Output is one record on its way to a derived topic.
type Output struct {
	Record *kgo.Record
	Kind   string // for the metric; empty for a dead letter
	// entry is what the local store applies after the commit, plus the broker's offset and time; empty if it applies nothing.
	entry runstore.Entry
	// Ended is the run if the record says that it has ended, and ParentTraceparent its parent's trace context: with Config.TellEnded only.
	// A run that had expired may end again.
	Ended             *record.Run
	ParentTraceparent string
	// run is set for the record of an unsealed run; announces is set if it is an announcement (run.announce).
	run       *run
	announces bool
}

// Cut names a run that was cut, and the bytes that it held.
type Cut struct {
	Tenant, ThreadID, RunID string
	Bytes                   int
}

// The kinds of output, for the metric.
const (
	outputSealed     = "sealed"
	outputCheckpoint = "checkpoint"
	outputAbandoned  = "abandoned"
	outputClosed     = "closed" // the final record of an expired run
	// outputLateError: the last record of a sealed run that failed after its end: see failLate.
	outputLateError = "late-error"
	outputProgress  = "progress"
	outputSnapshot  = "snapshot"
	outputOversize  = "oversize"
	outputTombstone = "tombstone"
	outputErasure   = "erasure"
	outputDetail    = "detail" // of a thread
	// outputOverQuota: the final record of a run that was ended as its tenant had too many: see endOverQuota.
	outputOverQuota = "over-quota"
)

// OutputKinds returns the kinds of output, for the metric.
func OutputKinds() []string {
	return []string{
		outputSealed, outputCheckpoint, outputAbandoned, outputClosed, outputProgress, outputSnapshot, outputOversize, outputTombstone,
		outputErasure, outputDetail, outputOverQuota, outputLateError,
	}
}

// IsFinal reports whether this is the final record of a run. The record of an abandoned run is final if the run was closed at once.
func (o Output) IsFinal() bool {
	return o.Kind == outputAbandoned && o.run == nil || o.Kind == outputSealed || o.Kind == outputClosed || o.Kind == outputOverQuota
}

func (o Output) bytes() int { return len(o.Record.Key) + len(o.Record.Value) }

// Effects are what one partition puts into a transaction.
type Effects struct {
	// Outputs are in order; the first Sent of them were taken before (Processor.Send).
	Outputs  []Output
	Sent     int
	Progress Progress
	Counts   Counts
	// Cut are the runs whose contents were cut.
	Cut []Cut
	// Differing are the runs that were sent again with other bytes.
	Differing []Repetition
	// Changed means that there is a reason for a transaction.
	Changed bool
}

// collect returns what the next transaction writes. Nothing may be processed until its outcome is known.
func (p *Processor) collect(now time.Time) (Effects, error) {
	if err := p.retirement.expire(now); err != nil {
		return Effects{}, err
	}
	b := Effects{Progress: p.progress, Outputs: p.outputs, Sent: p.sent, Counts: p.counts, Cut: p.cuts, Differing: p.differing}
	b.Counts.Reads = p.store.TakeReads()
	p.outputs, p.sent, p.cuts, p.differing, p.counts = nil, 0, nil, nil, newCounts()

	hold, holdAt, known := p.next, p.clock.stream, p.progress.Processed
	if one := p.awaiting.first(); one != nil {
		hold, holdAt = one.offset, one.at
	}
	held := func(r *run, announced bool) {
		if r.changedFrom < 0 {
			return
		}
		if r.changedFrom < hold {
			hold, holdAt = r.changedFrom, r.changedAt
		}
		if !r.written.open && !announced && (!r.again || r.Fold != nil) {
			known = min(known, r.changedFrom)
		}
	}
	due := p.dueRuns(now, func(r *run) { held(r, false) })
	slices.SortFunc(due, func(a, b *run) int { return cmp.Compare(a.meta.Start, b.meta.Start) })
	for _, r := range due {
		out, err := r.checkpoint(now)
		if err != nil {
			return Effects{}, err
		}
		if out == nil || out.announces {
			held(r, out != nil)
		}
		if out == nil {
			continue
		}
		b.Outputs = append(b.Outputs, *out)
	}
	b.Progress.Committed, b.Progress.StreamTime = hold, 0
	if !holdAt.IsZero() {
		b.Progress.StreamTime = holdAt.UnixMilli()
	}
	if gap := b.Progress.Gap; gap.Until > 0 && b.Progress.StreamTime >= gap.Until { // no event that may be read again depends on it
		b.Progress.Gap, p.progress.Gap = record.Gap{}, record.Gap{}
	}
	if p.gap != nil {
		b.Progress = p.committed
	}
	b.Changed = len(b.Outputs) > 0 || b.Progress != p.committed
	p.addProgressRecord(&b, known)
	return b, nil
}

// Send returns outputs that the next transaction writes in any case and that were not returned before, once they have so many bytes. They
// can be written while others are folded; Collect returns all of them. Resend takes that back, as their transaction was aborted.
func (p *Processor) Send(bytes int) (unsent []Output) {
	unsent = p.outputs[p.sent:]
	for _, o := range unsent {
		bytes -= o.bytes()
	}
	if bytes > 0 {
		return nil
	}
	p.sent = len(p.outputs)
	return unsent
}

// HasEnded reports whether a run has ended since the last Collect.
func (p *Processor) HasEnded() bool { return len(p.counts.Ended) > 0 }

// Resend makes Send and Effects.Sent count from the first output again. It takes from the records the context of their transaction, which
// the client has set and would keep.
func (p *Processor) Resend() {
	for _, o := range p.outputs[:p.sent] {
		o.Record.Context = nil
	}
	p.sent = 0
}

// Committed updates the store and memory after the transaction with these effects was committed.
func (p *Processor) Committed(b Effects, now time.Time) error {
	entries := make([]runstore.Entry, 0, len(b.Outputs))
	for _, o := range b.Outputs {
		if o.entry.Key == nil && o.entry.Progress == nil {
			continue
		}
		o.entry.Offset, o.entry.Time = o.Record.Offset, o.Record.Timestamp
		entries = append(entries, o.entry)
		if o.run == nil {
			delete(p.unsaved.records, string(o.entry.Key))
			continue
		}
		r := o.run
		all := r.recordCommitted(o.announces, len(o.Record.Value), now)
		p.runs.recount(r)
		if all {
			delete(p.runs.changed, r)
		}
	}
	clear(p.unsaved.known) // nothing was sealed since the effects were collected
	if p.gap == nil {
		p.progress, p.committed = b.Progress, b.Progress
	}
	if err := p.store.Apply(entries, now); err != nil {
		return err
	}
	return p.evict(now)
}

// Unload evicts runs and threads. Call it if there was nothing to commit.
func (p *Processor) Unload(now time.Time) error { return p.evict(now) }
