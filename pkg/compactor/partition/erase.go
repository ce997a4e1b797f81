package partition

import (
	"maps"
	"slices"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
)

// erase deletes the runs, snapshots and details of a thread. Later records begin the thread as if it were new.
//
// One transaction contains all tombstones, then an erasure record, and the processed offset. The erasure record is written even if the
// thread has no runs, because the thread may have dead letters, and the list of dead letters omits those that the record covers. If an open
// run of another thread holds back the committed offset, events below the erasure are read again after a crash; route drops those that the
// erasure record covers.
func (p *Processor) erase(t *thread, m *message) (fold.Outcome, error) {
	// Below the processed offset the thread was erased before, and what it has now came later.
	if m.rebuilds {
		return outcomeErasure, nil
	}
	if t.loader != nil {
		if err := t.loader.all(); err != nil {
			return "", err
		}
	}
	p.withdraw(t)
	for _, h := range t.Runs() {
		if key := t.runKey(h.ID); p.remove(h, key) {
			p.write(p.tombstone(p.topics.Runs, record.KindRun, key))
		}
	}
	for _, branch := range slices.Sorted(maps.Keys(t.tips.Copy())) {
		p.awaiting.drop(t.runKey(branch))
		for _, kind := range []agui.Type{agui.MessagesSnapshot, agui.StateSnapshot} {
			key, err := record.SnapshotKey(t.tenant, t.id, branch, kind)
			if err != nil {
				return "", err
			}
			p.write(p.tombstone(p.topics.Snapshots, record.KindSnapshot, key))
		}
	}
	for _, name := range record.DetailNames() { // nothing knows which of them the thread has
		p.writeDetail(t.key, record.Detail{Name: name})
	}
	below := m.Offset + 1
	p.write(Output{
		Kind: outputErasure, Record: p.record(p.topics.Runs, t.key, record.EncodeErased(below), record.KindErase, ""),
		entry: runstore.Entry{Key: []byte(t.key), Erased: below},
	})
	// The new thread is not read from the local store, which has the erasure only once it is committed.
	next, err := p.newThread(t.key, t.tenant, t.id, nil)
	if err != nil {
		return "", err
	}
	next.erased, next.usedAt = below, m.now
	p.threads[t.key] = next
	delete(p.unsaved.known, t.key)
	return outcomeErasure, nil
}

// withdraw removes a thread's outputs from the next transaction, but for those that are sent: tombstones follow them there.
func (p *Processor) withdraw(t *thread) {
	prefix := t.key + "/"
	p.outputs = append(p.outputs[:p.sent], slices.DeleteFunc(p.outputs[p.sent:], func(o Output) bool {
		if o.Kind == "" || o.Kind == outputTombstone || !strings.HasPrefix(string(o.Record.Key), prefix) {
			return false
		}
		p.room.outputs.Add(int64(o.bytes()))
		if o.Kind == outputSealed {
			p.counts.Ended[record.Status(o.entry.Metadata.Status)]--
		}
		return true
	})...)
	for _, h := range t.Unsealed() {
		if r := h.live; r != nil && h.IsExpired() && (!r.written.exists || r.written.open) { // no record shows it as expired yet
			p.counts.Ended[record.StatusAbandoned]--
		}
	}
}

// remove drops a run from memory and reports whether a committed record of it may exist.
func (p *Processor) remove(h *threadRun, key string) bool {
	delete(p.unsaved.records, key)
	p.retirement.expiring.drop(key)
	p.retirement.closing.drop(key)
	p.histories.drop(key)
	r := h.live
	if r == nil {
		return true
	}
	p.runs.drop(r)
	return r.written.exists
}
