package partition

import (
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// seal ends a run whose terminal event was folded: its record is made now and never again. From
// here on the run is what its record says, read back: whoever builds on it then builds on the same,
// now or after a restart.
func (p *Processor) seal(r *run) error {
	rec, base, err := p.build(r)
	if err != nil {
		return err
	}
	return p.end(r, rec, base, Output{Kind: outputSealed})
}

// end writes the last record of a run, and its branch where that is due.
func (p *Processor) end(r *run, rec *record.Run, base lineage.History, as Output) error {
	at, err := lineage.RestoreFrom(base, contentOf(rec))
	if err != nil {
		return fmt.Errorf("sealing run: %w", err)
	}
	h := r.head
	h.end(lineage.Status(rec.Status), rec.Synthetic)
	h.Sealed = true
	h.SinceSnapshot = p.sinceSnapshot(r, rec, at)
	whole, err := p.wantsSnapshot(r, at)
	if err != nil {
		return err
	}
	if whole {
		h.SinceSnapshot = 0
	}
	rec.SinceSnapshot = h.SinceSnapshot
	out, err := p.finish(r, rec, as.Kind)
	if err != nil {
		return err
	}
	out.Outgrown = as.Outgrown
	p.write(*out)
	p.counts.Ended[rec.Status]++
	if !whole {
		return nil
	}
	if rec.Truncated { // since at was restored
		if at, err = lineage.RestoreFrom(base, contentOf(rec)); err != nil {
			return fmt.Errorf("sealing run: %w", err)
		}
	}
	return p.snapshot(r.thread, h, at)
}

// finish makes the last record of a run and lets the run go.
func (p *Processor) finish(r *run, rec *record.Run, kind string) (*Output, error) {
	value, err := record.Fit(rec, p.cfg.RecordLimit)
	if err != nil {
		return nil, err
	}
	r.head.Truncated = rec.Truncated
	p.hold(r.thread, r.head, r.key, rec, value)
	p.letGo(r)
	delete(p.dirty, r)
	p.silent.drop(r.key)
	p.abandoned.drop(r.key)
	if err := r.thread.seal(r.head); err != nil {
		return nil, err
	}
	return p.runOutput(r.key, rec, value, kind)
}

// runOutput wraps a run's encoded record, with the head that a process takes out of it which reads it.
func (p *Processor) runOutput(key string, rec *record.Run, value []byte, kind string) (*Output, error) {
	entry, err := runstore.RunEntry(key, rec, value)
	if err != nil {
		return nil, err
	}
	return &Output{
		Record: &kgo.Record{
			Topic: p.topics.Runs, Partition: p.id, Key: []byte(key), Value: value,
			Headers: kafka.Headers(record.Headers{Version: record.Version, Kind: record.KindRun, RunID: rec.RunID, Seq: -1}),
		},
		Kind: kind, entry: entry,
	}, nil
}

// sinceSnapshot is how many bytes the run's branch has added since it was last written whole. A
// branch's first run counts with all of its conversation.
func (p *Processor) sinceSnapshot(r *run, rec *record.Run, at lineage.History) int64 {
	parent := r.thread.heads[r.head.Parent]
	if parent == nil || parent.Branch != r.head.Branch || rec.Base != parent.ID {
		return int64(at.Bytes())
	}
	return parent.SinceSnapshot + int64(conversationBytes(rec.Messages))
}

// wantsSnapshot reports whether the branch is written whole at this run's end: while it is small,
// else once half of it is new, so that what is written stays in proportion to what was added.
func (p *Processor) wantsSnapshot(r *run, at lineage.History) (bool, error) {
	tip, err := r.thread.tip(r.head.Branch)
	if err != nil {
		return false, err
	}
	if tip > r.head.Depth {
		return false, nil // a descendant ended first: the branch's tip is further already
	}
	size := int64(at.Bytes())
	return size < int64(p.cfg.SnapshotBelow) || 2*r.head.SinceSnapshot >= size, nil
}

// snapshot writes the branch of a run whole, as of the run's end, as two events that a stock client plays.
func (p *Processor) snapshot(t *thread, h *head, at lineage.History) error {
	messages := append(make([]byte, 0, at.Bytes()+len(at.Messages)+64), `{"type":"MESSAGES_SNAPSHOT","messages":[`...)
	for i, m := range at.Messages {
		if i > 0 {
			messages = append(messages, ',')
		}
		messages = append(messages, m.Raw...)
	}
	messages = append(messages, `]}`...)
	state := append([]byte(`{"type":"STATE_SNAPSHOT","snapshot":`), at.State...)
	state = append(state, '}')
	for _, s := range []struct {
		kind  agui.Type
		value []byte
	}{{agui.MessagesSnapshot, messages}, {agui.StateSnapshot, state}} {
		key, err := record.SnapshotKey(t.tenant, t.id, h.Branch, s.kind)
		if err != nil {
			return err
		}
		kind, counted := record.KindSnapshot, outputSnapshot
		if len(s.value) > p.cfg.RecordLimit {
			kind, counted = record.KindOversize, outputOversize
			s.value = []byte(`{"bytes":` + strconv.Itoa(len(s.value)) + `}`)
		}
		p.write(Output{Kind: counted, Record: &kgo.Record{
			Topic: p.topics.Snapshots, Partition: p.id, Key: []byte(key), Value: s.value,
			Headers: kafka.Headers(record.Headers{Version: record.Version, Kind: kind, RunID: h.ID, Seq: -1}),
		}})
	}
	return nil
}
