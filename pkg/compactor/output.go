package compactor

import (
	"cmp"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/record"
)

// output is one record on its way to a derived topic.
type output struct {
	record *kgo.Record
	kind   string // for the metric; empty for a dead letter
	// What the local store takes in after the commit; only for run records.
	key  string
	head *head
	// run is set for the record of a run that is not sealed.
	run *run
}

// The kinds of output, for the metric.
const (
	outputSealed     = "sealed"
	outputCheckpoint = "checkpoint"
	outputAbandoned  = "abandoned"
	outputFence      = "fence"
	outputSnapshot   = "snapshot"
	outputOversize   = "oversize"
)

func outputKinds() []string {
	return []string{outputSealed, outputCheckpoint, outputAbandoned, outputFence, outputSnapshot, outputOversize}
}

// batch is what one partition puts into a transaction.
type batch struct {
	outputs  []output
	position position
	counts   counts
	// changed says that there is a reason for a transaction.
	changed bool
}

// collect takes what is to be written. The partition must not process anything until the
// transaction's outcome is known.
func (p *partition) collect(now time.Time) (batch, error) {
	b := batch{position: p.position, outputs: p.outputs, counts: p.counts}
	p.outputs, p.counts = nil, newCounts()

	hold := p.next
	var due []*run
	for r := range p.dirty {
		if p.isDue(r, now) {
			due = append(due, r)
		} else if r.dirtyFrom >= 0 {
			hold = min(hold, r.dirtyFrom)
		}
	}
	slices.SortFunc(due, func(a, b *run) int { return cmp.Compare(a.head.Start, b.head.Start) })
	for _, r := range due {
		out, err := p.checkpoint(r, now)
		if err != nil {
			return batch{}, err
		}
		if out == nil {
			if r.dirtyFrom >= 0 {
				hold = min(hold, r.dirtyFrom)
			}
			continue
		}
		b.outputs = append(b.outputs, *out)
	}
	b.position.committedOffset = hold
	b.changed = len(b.outputs) > 0 || b.position != p.settled
	return b, nil
}

// isDue is the checkpoint rule.
func (p *partition) isDue(r *run, now time.Time) bool {
	age := now.Sub(r.savedAt)
	return r.due || age >= p.cfg.CheckpointMax ||
		age >= p.cfg.CheckpointInterval && r.newBytes >= p.cfg.CheckpointFactor*r.savedSize
}

// checkpoint makes the record of a run that is not sealed. Over the limit it makes none, and the run
// goes on holding the commit: a record that was cut could not be gone on from. An abandoned run
// that is over the limit ends for good, so that it does not hold the commit for ever.
func (p *partition) checkpoint(r *run, now time.Time) (*output, error) {
	rec, _, err := p.build(r)
	if err != nil {
		return nil, err
	}
	value, err := record.EncodeRun(rec)
	if err != nil {
		return nil, err
	}
	if len(value) > p.cfg.RecordLimit {
		if r.head.Open() {
			r.savedAt, r.due = now, false
			return nil, nil
		}
		rec.Open = nil
		r.head.Sealed = true
		return p.finish(r, rec, outputAbandoned)
	}
	out := p.runOutput(r, value)
	out.run, out.kind = r, outputCheckpoint
	if !r.head.Open() {
		out.kind = outputAbandoned
	}
	return &out, nil
}

// committed notes that the batch's transaction was committed: only now is the local store written
// and memory dropped.
func (p *partition) committed(b batch, now time.Time) error {
	entries := make([]entry, 0, len(b.outputs))
	for _, o := range b.outputs {
		if o.key == "" {
			continue
		}
		entries = append(entries, entry{key: []byte(o.key), value: o.record.Value, head: o.head, offset: o.record.Offset})
		if o.run == nil {
			delete(p.unsaved, o.key)
			continue
		}
		r := o.run
		r.dirtyFrom, r.recorded, r.due = -1, true, false
		r.placed = r.fold != nil
		r.savedAt, r.savedSize, r.newBytes = now, len(o.record.Value), 0
		delete(p.dirty, r)
	}
	p.position, p.settled = b.position, b.position
	if err := p.store.apply(entries, now); err != nil {
		return err
	}
	return p.evict(now)
}

// evictAfter is how long a run without unwritten events stays in memory.
const evictAfter = 30 * time.Second

// maxThreads is how many threads stay at hand that have no run in memory.
const maxThreads = 4096

// evict lets go of what committed records can give back.
func (p *partition) evict(now time.Time) error {
	if now.Sub(p.evictedAt) < time.Second {
		return nil
	}
	p.evictedAt = now
	busy := map[*thread]bool{}
	for key, r := range p.runs {
		_, dirty := p.dirty[r]
		if dirty || !r.recorded || now.Sub(r.touchedAt) < evictAfter {
			busy[r.thread] = true
			continue
		}
		if r.fold != nil {
			// The record that was just committed says the same of the history as the fold.
			if err := r.thread.lineage.Add(r.head.Run); err != nil {
				return err
			}
		}
		delete(p.runs, key)
	}
	if len(p.threads) <= maxThreads {
		return nil
	}
	idle := make([]*thread, 0, len(p.threads))
	for _, t := range p.threads {
		if !busy[t] {
			idle = append(idle, t)
		}
	}
	slices.SortFunc(idle, func(a, b *thread) int { return cmp.Compare(a.usedAt, b.usedAt) })
	for _, t := range idle[:min(len(idle), len(p.threads)-maxThreads/2)] {
		delete(p.threads, t.key)
	}
	return nil
}

// thread returns a thread by its key.
func (p *partition) thread(key, tenant, id string) (*thread, error) {
	if t := p.threads[key]; t != nil {
		t.usedAt = p.next
		return t, nil
	}
	heads, err := p.store.heads(key)
	if err != nil {
		return nil, err
	}
	t, err := newThread(key, tenant, id, heads)
	if err != nil {
		return nil, err
	}
	t.usedAt = p.next
	p.threads[key] = t
	return t, nil
}
