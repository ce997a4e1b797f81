package partition

import (
	"strconv"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// sinceSnapshot returns how many bytes the run's branch has added since it was last written whole. A branch's first run counts with all of
// its conversation.
func (r *run) sinceSnapshot(rec *record.Run, at lineage.History) int64 {
	parent := r.thread.Get(r.meta.Parent)
	if parent == nil || parent.Branch != r.meta.Branch || rec.Base != parent.ID {
		return int64(at.Bytes())
	}
	return parent.SinceSnapshot + int64(lineage.History{Messages: rec.Messages}.Bytes())
}

// wantsSnapshot reports whether the branch is written whole at this run's end: while it is small, else once half of it is new, so that the
// bytes written stay in proportion to the bytes added.
func (r *run) wantsSnapshot(at lineage.History) (bool, error) {
	p := r.thread.p
	tip, err := r.thread.tip(r.meta.Branch)
	if err != nil {
		return false, err
	}
	if tip > r.meta.Depth {
		return false, nil // a descendant ended first and is the branch's tip
	}
	size := int64(at.Bytes())
	return size < int64(p.cfg.SnapshotBelow) || 2*r.meta.SinceSnapshot >= size, nil
}

// snapshot writes the whole conversation of a run's branch at the run's end, as two events that an AG-UI client can apply.
func (l *ledger) snapshot(t *thread, h *threadRun, at lineage.History) error {
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
		if len(s.value) > l.cfg.RecordLimit {
			kind, counted = record.KindOversize, outputOversize
			s.value = []byte(`{"bytes":` + strconv.Itoa(len(s.value)) + `}`)
		}
		l.write(Output{Kind: counted, Record: l.record(l.topics.Snapshots, key, s.value, kind, h.ID)})
	}
	return nil
}
