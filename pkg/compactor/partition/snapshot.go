package partition

import (
	"container/list"
	"strconv"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// A branch is written whole apart from the ends of its runs, so that ten quick turns write it once and not ten times: once its thread has
// had no record for snapshotQuiet, and snapshotMax after the first end that awaits it at the latest. The clock is the process's own, as for
// checkpoints: what is written does not depend on it, and readers of an old backlog want the tip as soon as others.
//
// Until then the last of these ends holds back the committed offset. So a new owner reads it again, finds it in its run's record, and has
// the branch await its snapshot again (awaitAgain). It writes none before it has read all ends below the processed offset, so that it
// writes none that is older than the last one. It may write the last one twice.
const (
	snapshotQuiet = 5 * time.Second
	snapshotMax   = 30 * time.Second
)

// awaited is a branch that awaits its snapshot.
type awaited struct {
	tenant, id  string // of its thread
	thread, key string // record keys, of the thread and of the branch's first run
	branch, run string // run is the one at whose end it is written whole

	offset int64     // of that end
	at     time.Time // the stream time then
	since  time.Time // the clock at the first end that is not in a snapshot
	bytes  int       // of the conversation; 0 if the end was read again, so it is not in memory
}

// awaiting holds the branches that await a snapshot, in the order of their ends.
type awaiting struct {
	order    list.List // of *awaited
	byBranch map[string]*list.Element
	bytes    int
}

// first returns the branch whose end comes first; nil if none awaits a snapshot.
func (w *awaiting) first() *awaited {
	if e := w.order.Front(); e != nil {
		return e.Value.(*awaited)
	}
	return nil
}

func (w *awaiting) drop(key string) {
	if e := w.byBranch[key]; e != nil {
		w.bytes -= w.order.Remove(e).(*awaited).bytes
		delete(w.byBranch, key)
	}
}

// await has the branch of a run await the snapshot at the run's end, in place of one at an earlier end.
func (t *thread) await(h *threadRun, bytes int) {
	p, key := t.p, t.runKey(h.Branch)
	e := p.awaiting.byBranch[key]
	if e == nil {
		e = p.awaiting.order.PushBack(&awaited{tenant: t.tenant, id: t.id, thread: t.key, key: key, branch: h.Branch, since: t.usedAt})
		p.awaiting.byBranch[key] = e
	}
	p.awaiting.order.MoveToBack(e)
	one := e.Value.(*awaited)
	p.awaiting.bytes += bytes - one.bytes
	one.run, one.bytes, one.offset, one.at = h.ID, bytes, h.End, p.clock.stream
	p.room.awaitSnapshot(bytes)
}

// awaitAgain has a branch await its snapshot again if the event at the offset, which is read again, is an end at which it was due. The
// snapshot may have been written since.
func (t *thread) awaitAgain(offset int64) {
	h := t.Member
	if h.Sealed && h.Status != lineage.StatusAbandoned && h.End == offset && h.SinceSnapshot == 0 {
		t.await(h, 0)
	}
}

// sinceSnapshot returns how many bytes the run's branch has added since it was last written whole. A branch's first run counts with all of
// its conversation.
func (r *run) sinceSnapshot(rec *record.Run, at lineage.History) int64 {
	parent := r.thread.Get(r.meta.Parent)
	if parent == nil || parent.Branch != r.meta.Branch || rec.Base != parent.ID {
		return int64(at.Bytes())
	}
	return parent.SinceSnapshot + int64(lineage.History{Messages: rec.Messages}.Bytes())
}

// wantsSnapshot reports whether the branch is to be written whole as it is at this run's end: while it is small, else once half of it is
// new, so that the bytes written stay in proportion to the bytes added. That depends on events alone.
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

// writeSnapshots writes the snapshots whose time has come, those that hold the committed offset first, as far as the transaction has room,
// but one at least. A process that stops writes all. One whose cache they half fill writes some sooner: later they would have to be read
// from the local store.
func (p *Processor) writeSnapshots(c Cycle) error {
	if p.rebuilds() {
		return nil
	}
	var next *list.Element
	wrote := false
	for e := p.awaiting.order.Front(); e != nil; e = next {
		next = e.Next()
		one := e.Value.(*awaited)
		if !c.Stopping && p.awaiting.bytes <= p.limits.cacheBytes/2 && !p.isSnapshotDue(one, c.Now) {
			continue
		}
		if wrote && !p.room.forSnapshots() {
			return nil
		}
		at, err := p.history(one.thread, one.run)
		if err != nil {
			return err
		}
		if err := p.snapshot(one, at); err != nil {
			return err
		}
		p.awaiting.drop(one.key)
		wrote = true
	}
	return nil
}

// isSnapshotDue reports whether the clock wants a snapshot now.
func (p *Processor) isSnapshotDue(one *awaited, now time.Time) bool {
	t := p.threads[one.thread]
	return t == nil || now.Sub(t.usedAt) >= snapshotQuiet || now.Sub(one.since) >= snapshotMax
}

// snapshot writes the whole conversation of a branch, as two events that an AG-UI client can apply.
func (l *ledger) snapshot(of *awaited, at lineage.History) error {
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
		key, err := record.SnapshotKey(of.tenant, of.id, of.branch, s.kind)
		if err != nil {
			return err
		}
		kind, counted := record.KindSnapshot, outputSnapshot
		if len(s.value) > l.cfg.RecordLimit {
			kind, counted = record.KindOversize, outputOversize
			s.value = []byte(`{"bytes":` + strconv.Itoa(len(s.value)) + `}`)
		}
		l.write(Output{Kind: counted, Record: l.record(l.topics.Snapshots, key, s.value, kind, of.run)})
	}
	return nil
}
