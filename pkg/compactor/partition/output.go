package partition

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Output is one record on its way to a derived topic.
type Output struct {
	Record *kgo.Record
	Kind   string // for the metric; empty for a dead letter
	// entry is what the local store takes in after the commit, but for what the broker adds; empty where that is nothing.
	entry runstore.Entry
	// run is set for the record of a run that is not sealed.
	run *run
	// Outgrown is set for the last record of an outgrown run.
	Outgrown *Outgrown
}

// Outgrown names a run that was ended as it had grown too large, and the bytes that its record would have had.
type Outgrown struct {
	Tenant, ThreadID, RunID string
	Bytes                   int
}

// The kinds of output, for the metric.
const (
	outputSealed     = "sealed"
	outputCheckpoint = "checkpoint"
	outputAbandoned  = "abandoned"
	outputClosed     = "closed" // the last record of a run that was abandoned
	outputPosition   = "position"
	outputSnapshot   = "snapshot"
	outputOversize   = "oversize"
	outputTombstone  = "tombstone"
	outputErasure    = "erasure"
	// outputRefolded: the record of a run that had ended, written anew.
	outputRefolded = "refolded"
	// outputOutgrown: the last record of a run that had grown too large: see endOutgrown.
	outputOutgrown = "outgrown"
)

// OutputKinds returns the kinds of output, for the metric.
func OutputKinds() []string {
	return []string{outputSealed, outputCheckpoint, outputAbandoned, outputClosed, outputPosition, outputSnapshot, outputOversize, outputTombstone, outputErasure, outputRefolded, outputOutgrown}
}

// write puts an output into the next transaction.
func (p *Processor) write(o Output) {
	p.outputs = append(p.outputs, o)
	p.room.outputs.Add(int64(-o.bytes()))
}

func (o Output) bytes() int { return len(o.Record.Key) + len(o.Record.Value) }

// Effects are what one partition puts into a transaction.
type Effects struct {
	Outputs  []Output
	Progress Progress
	Counts   Counts
	// told is what position records say once the transaction is committed.
	told int64
	// changed says that there is a reason for a transaction.
	Changed bool
}

// collect takes what is to be written. The partition must not process anything until the
// transaction's outcome is known.
func (p *Processor) collect(now time.Time) (Effects, error) {
	if err := p.expire(now); err != nil {
		return Effects{}, err
	}
	b := Effects{Progress: p.progress, Outputs: p.outputs, Counts: p.counts}
	b.Counts.Reads = p.store.TakeReads()
	p.outputs, p.counts = nil, newCounts()

	hold, holdAt, known := p.next, p.streamTime, p.progress.Processed
	held := func(r *run) {
		if r.dirtyFrom < 0 {
			return
		}
		if r.dirtyFrom < hold {
			hold, holdAt = r.dirtyFrom, r.dirtyAt
		}
		if !r.shownOpen {
			known = min(known, r.dirtyFrom)
		}
	}
	due := p.dueRuns(now, held)
	slices.SortFunc(due, func(a, b *run) int { return cmp.Compare(a.head.Start, b.head.Start) })
	for _, r := range due {
		out, err := p.checkpoint(r, now)
		if err != nil {
			return Effects{}, err
		}
		if out == nil {
			held(r)
			continue
		}
		if out.entry.Metadata.Placed { // nothing of what it holds is in there
			held(r)
		}
		b.Outputs = append(b.Outputs, *out)
	}
	b.Progress.Committed, b.Progress.StreamTime = hold, 0
	if !holdAt.IsZero() {
		b.Progress.StreamTime = holdAt.UnixMilli()
	}
	if gap := b.Progress.Gap; gap.Until > 0 && b.Progress.StreamTime >= gap.Until { // nothing that is read again is judged by it
		b.Progress.Gap, p.progress.Gap = record.Gap{}, record.Gap{}
	}
	if p.skip != nil {
		b.Progress = p.settled
	}
	b.Changed = len(b.Outputs) > 0 || b.Progress != p.settled
	p.tell(&b, known)
	return b, nil
}

// dueRuns returns the runs that are written now, and passes those that wait to waits. Of very many that are due at the
// same moment a transaction takes some (Room), those first whose events wait longest, so that the committed offset moves
// on with each. What was requested goes in any case, as its resolution may rest on that (settle): Process stops once that
// is much (ask).
func (p *Processor) dueRuns(now time.Time, waits func(*run)) (due []*run) {
	p.relieve(now)
	var timely []*run
	for r := range p.dirty {
		switch {
		case r.due:
			due = append(due, r)
		case p.isDue(r, now):
			timely = append(timely, r)
		default:
			waits(r)
		}
	}
	slices.SortFunc(timely, func(a, b *run) int {
		return cmp.Or(cmp.Compare(a.dirtyFrom, b.dirtyFrom), cmp.Compare(a.head.Start, b.head.Start))
	})
	for i, r := range timely {
		if i > 0 && p.room.checkpoints.Load() <= 0 { // one of them at least
			waits(r)
			continue
		}
		due = append(due, r)
		p.room.checkpoints.Add(int64(-r.size()))
	}
	return due
}

// isDue is the checkpoint rule. A run that says much within the interval does not wait for that: what it says
// until its next record is read again after a crash.
func (p *Processor) isDue(r *run, now time.Time) bool {
	age, grown := now.Sub(r.savedAt), r.newBytes >= p.cfg.CheckpointFactor*r.savedSize
	return age >= p.cfg.CheckpointMax || grown && (age >= p.cfg.CheckpointInterval || r.newBytes >= p.cfg.RecordLimit)
}

// ask has a run written in the next transaction, whatever the checkpoint rule says.
func (p *Processor) ask(r *run) {
	if !r.due {
		r.due = true
		p.room.outputs.Add(int64(-r.size()))
	}
}

// checkpoint makes the record of a run that is not sealed. Over the limit it makes none, and the run
// goes on holding the commit: a record that was cut could not be gone on from. It is tried again by the
// same rule as if it had been written. Where the run's place has to be written now, a record says that alone. An abandoned run
// ends for good, so that it does not hold the commit for ever.
func (p *Processor) checkpoint(r *run, now time.Time) (*Output, error) {
	if r.made != nil {
		return r.made, nil
	}
	limit := p.cfg.RecordLimit
	if !r.head.Open() || r.dirtyFrom < 0 {
		limit += lateRoom
	}
	out, size, err := p.openRecord(r, limit)
	switch {
	case err != nil:
		return nil, err
	case out != nil:
		return out, nil
	case !r.head.Open(): // the limit was another one
		return p.close(r, outputAbandoned)
	}
	place := r.due && !r.placed && r.fold != nil
	r.savedAt, r.savedSize, r.newBytes, r.due, r.unfit = now, size, 0, false, true
	if place {
		return p.placeRecord(r)
	}
	return nil, nil
}

// lateRoom is by how much a run that was abandoned may be over the limit: what comes for it and does not take that back adds ranges and
// anomalies. It would end for good else, or not, by what else the transaction holds. So may one of which nothing came since its last record, as
// all that is new is a mark (markLost): nothing holds the commit for that, and without a record it would be forgotten in a crash.
const lateRoom = 8 << 10

// openRecord makes the record of a run that is not sealed, from which it can go on; nil where that is over the limit, as its
// size tells.
func (p *Processor) openRecord(r *run, limit int) (out *Output, size int, err error) {
	rec, _, err := p.build(r)
	if err != nil {
		return nil, 0, err
	}
	if rec.Open == nil {
		return nil, record.LeastBytes(rec), nil
	}
	value, err := record.EncodeRun(rec)
	if err != nil || len(value) > limit {
		return nil, len(value), err
	}
	kind := outputCheckpoint
	if !r.head.Open() {
		kind = outputAbandoned
	}
	if out, err = p.runOutput(r.key, rec, value, kind); err != nil {
		return nil, 0, err
	}
	out.run = r
	return out, len(value), nil
}

// placeRecord makes the record of a run that says where it belongs, and nothing of what came from its first event on: that is read
// again. It may be over the limit by what there is beside content; there is room for that in a batch (kafka.MaxBatchBytes). For the rest
// see fits.
func (p *Processor) placeRecord(r *run) (*Output, error) {
	before := r.decided.before
	h := &head{Metadata: runstore.Metadata{Next: before.next, LastAt: r.head.LastAt, Pending: true, Placed: true}}
	h.Run = lineage.Run{ID: r.head.ID, GivenID: r.head.GivenID, Start: r.head.Start, End: -1, Status: lineage.StatusRunning}
	was := newRun(r.thread, r.key, h, r.touchedAt)
	was.setSequence(before.seq)
	was.producer = before.producer
	was.setInput(before.input, before.inputSum)
	was.tally.StartedAt, was.rec.RawLost, was.ranges, was.decided = r.tally.StartedAt, r.rec.RawLost, record.NewRanges(before.ranges), r.decided
	maps.Copy(was.early, before.early)
	for _, rule := range r.decided.Anomalies {
		was.early[rule]++
	}
	rec, fold, err := p.describe(was)
	if err != nil {
		return nil, err
	}
	if err := was.buildOpen(rec, fold); err != nil {
		return nil, err
	}
	value, err := record.EncodeRun(rec)
	if err != nil {
		return nil, fmt.Errorf("encoding place of run: %w", err)
	}
	out, err := p.runOutput(r.key, rec, value, outputCheckpoint)
	if err != nil {
		return nil, err
	}
	out.run = r
	return out, nil
}

// Committed takes in that the effects are durable: only now it writes the store and drops what memory no longer needs.
func (p *Processor) Committed(b Effects, now time.Time) error {
	entries := make([]runstore.Entry, 0, len(b.Outputs))
	for _, o := range b.Outputs {
		if o.entry.Key == nil && o.entry.Progress == nil {
			continue
		}
		o.entry.Offset, o.entry.Time = o.Record.Offset, o.Record.Timestamp
		entries = append(entries, o.entry)
		if o.run == nil {
			delete(p.unsaved, string(o.entry.Key))
			continue
		}
		r := o.run
		r.recorded, r.shownOpen = true, r.head.Open()
		alone := r.fold != nil && o.entry.Metadata.Placed // its place: what came from its first event on is in none
		if alone {
			r.dirtyFrom, r.dirtyAt = r.decided.before.first, r.decided.before.at
		}
		if r.fold != nil {
			r.placed, r.decided = true, nil
		}
		if alone {
			continue
		}
		r.dirtyFrom, r.due, r.unfit, r.made = -1, false, false, nil
		r.savedAt, r.savedSize, r.newBytes = now, len(o.Record.Value), 0
		if r.rec.Base == "" { // the record has all that it goes on from
			r.under = 0
		}
		delete(p.dirty, r)
	}
	clear(p.said) // nothing was sealed since the effects were collected
	if p.skip == nil {
		p.progress, p.settled, p.told = b.Progress, b.Progress, b.told
	}
	if err := p.store.Apply(entries, now); err != nil {
		return err
	}
	return p.evict(now)
}

// Unload drops what memory no longer needs where there was nothing to commit.
func (p *Processor) Unload(now time.Time) error { return p.evict(now) }

// thread returns a thread by its key.
func (p *Processor) thread(key, tenant, id string) (*thread, error) {
	if t := p.threads[key]; t != nil {
		return t, nil
	}
	unsealed, err := p.store.Thread(key).Unsealed()
	if err != nil {
		return nil, err
	}
	t, err := p.newThread(key, tenant, id, headsOf(unsealed))
	if err != nil {
		return nil, err
	}
	if err := p.bringEnded(t); err != nil {
		return nil, err
	}
	if t.erased, err = p.store.Thread(key).ErasedBelow(); err != nil {
		return nil, err
	}
	p.threads[key] = t
	return t, nil
}

// bringEnded has those sealed runs at hand that a thread begins with: those that ended at the record that is being
// processed or behind, which is read again then, and the one that ended last before it, which is the parent of most.
func (p *Processor) bringEnded(t *thread) error {
	stored := p.store.Thread(t.key)
	last, all, err := stored.EndedAt(p.next - 1)
	if err != nil {
		return err
	}
	t.rest = &rest{thread: t, store: stored, asked: map[restKey]struct{}{}}
	if err := t.rest.bring(last...); err != nil {
		return err
	}
	if all {
		t.rest = nil
	} else {
		t.lineage.Leave(t.rest)
	}
	return nil
}
