package partition

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// erase takes in an erasure of the thread: its runs and snapshots go, and what comes behind it is a new
// life of the thread, which knows nothing of the one before.
//
// All tombstones are in one transaction with the processed offset, and so is an erasure record that lies behind them; it is written
// where the thread has no runs, too: dead letters may be all that there is of it, and who lists them goes by the record. Where
// the committed offset stays below the erasure, as another thread has an open run there, the events
// between the committed and the processed offset are read again after a crash. The erasure record then says which of them are erased:
// nothing is made of them, not even for a while (route).
func (p *Processor) erase(t *thread, m *message) (fold.Outcome, error) {
	// Below the processed offset it is done, and all that the thread has is of a later life.
	if m.rebuilds {
		return outcomeErasure, nil
	}
	if t.loader != nil {
		if err := t.loader.all(); err != nil {
			return "", err
		}
	}
	p.withdraw(t)
	runs := slices.SortedFunc(maps.Values(t.runs), func(a, b *threadRun) int { return cmp.Compare(a.Start, b.Start) })
	for _, h := range runs {
		key, err := record.RunKey(t.tenant, t.id, h.ID)
		if err != nil {
			return "", err
		}
		if p.remove(h, key) {
			p.write(p.tombstone(p.topics.Runs, record.KindRun, key))
		}
	}
	for _, branch := range slices.Sorted(maps.Keys(t.tips)) {
		for _, kind := range []agui.Type{agui.MessagesSnapshot, agui.StateSnapshot} {
			key, err := record.SnapshotKey(t.tenant, t.id, branch, kind)
			if err != nil {
				return "", err
			}
			p.write(p.tombstone(p.topics.Snapshots, record.KindSnapshot, key))
		}
	}
	below := m.Offset + 1
	p.write(Output{Kind: outputErasure, entry: runstore.Entry{Key: []byte(t.key), Erased: below}, Record: &kgo.Record{
		Topic: p.topics.Runs, Partition: p.id, Key: []byte(t.key), Value: record.EncodeErased(below),
		Headers: kafka.Headers(record.Headers{Version: record.Version, Kind: record.KindErase, Seq: -1}),
	}})
	// Not read from the local store, which knows of the erasure once it is committed.
	next, err := p.newThread(t.key, t.tenant, t.id, nil)
	if err != nil {
		return "", err
	}
	next.erased, next.usedAt = below, m.now
	p.threads[t.key] = next
	delete(p.unsaved.said, t.key)
	return outcomeErasure, nil
}

// withdraw takes back what this round has made of a thread: nobody has seen it, and nobody shall.
func (p *Processor) withdraw(t *thread) {
	prefix := t.key + "/"
	p.outputs = slices.DeleteFunc(p.outputs, func(o Output) bool {
		if o.Kind == "" || o.Kind == outputTombstone || !strings.HasPrefix(string(o.Record.Key), prefix) {
			return false
		}
		p.room.outputs.Add(int64(o.bytes()))
		if o.Kind == outputSealed || o.Kind == outputOutgrown {
			p.counts.Ended[record.Status(o.entry.Metadata.Status)]--
		}
		return true
	})
	for _, h := range t.open {
		if r := h.live; r != nil && h.isExpired() && (!r.written.exists || r.written.open) { // abandoned, and no record says so yet
			p.counts.Ended[record.StatusAbandoned]--
		}
	}
}

// forget drops a run from memory, and reports whether a committed record of it may exist.
func (p *Processor) remove(h *threadRun, key string) bool {
	delete(p.unsaved.records, key)
	p.expiring.drop(key)
	p.closing.drop(key)
	p.histories.drop(key)
	r := h.live
	if r == nil {
		return true
	}
	p.runs.drop(r)
	return r.written.exists
}

// tombstone is the record that takes away the one of the same key.
func (p *Processor) tombstone(topic string, kind record.Kind, key string) Output {
	o := Output{Kind: outputTombstone, Record: &kgo.Record{
		Topic: topic, Partition: p.id, Key: []byte(key),
		Headers: kafka.Headers(record.Headers{Version: record.Version, Kind: kind, Seq: -1}),
	}}
	if kind == record.KindRun {
		o.entry.Key = []byte(key)
	}
	return o
}
