package partition

import (
	"container/list"
	"fmt"
	"slices"

	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// histories caches the histories of a partition's recently ended runs, so that the next turn of a conversation does not read its whole
// chain. The histories of one conversation share their list of messages, which counts once and is evicted with all of them. Different
// lists count in full, even if they have messages in common. Above the limit, the least recently used list is evicted. The most
// recently used one always stays: otherwise a conversation over the limit would be read from its beginning at each turn.
type histories struct {
	limit, size int
	order       *list.List // of *messageList, most recently used first
	byID        map[any]*list.Element
	byRun       map[string]*list.Element // by the run's record key
}

// messageList is a list of messages and the histories that share it, one for each run.
type messageList struct {
	id   any
	held int // bytes of the list
	own  int // bytes of its histories without the list
	runs map[string]lineage.History
	keys []string // of the runs, in the order in which they came
}

// historyOverhead is about what a history takes in addition to its messages and state.
const historyOverhead = 512

func newHistories(limit int) *histories {
	return &histories{limit: limit, order: list.New(), byID: map[any]*list.Element{}, byRun: map[string]*list.Element{}}
}

func (h *histories) get(run string) (lineage.History, bool) {
	e, ok := h.byRun[run]
	if !ok {
		return lineage.History{}, false
	}
	h.order.MoveToFront(e)
	return e.Value.(*messageList).runs[run], true
}

// put adds a history that is shared (lineage.History.Share).
func (h *histories) put(run string, history lineage.History) {
	h.drop(run)
	id, held := history.List()
	e := h.byID[id]
	if e == nil {
		e = h.order.PushFront(&messageList{id: id, runs: map[string]lineage.History{}})
		h.byID[id] = e
	}
	h.order.MoveToFront(e)
	l := e.Value.(*messageList)
	l.runs[run], h.byRun[run] = history, e
	l.keys = append(l.keys, run)
	h.grow(l, held-l.held, historySize(run, history)) // the list may be longer by now
	for h.size > h.limit && h.order.Len() > 1 {
		h.removeList(h.order.Back())
	}
	for l.own > h.limit && len(l.runs) > 1 {
		h.drop(l.keys[0])
		l.keys = l.keys[1:]
	}
}

// drop removes the history of a run, if it is there.
func (h *histories) drop(run string) {
	e, ok := h.byRun[run]
	if !ok {
		return
	}
	l := e.Value.(*messageList)
	h.grow(l, 0, -historySize(run, l.runs[run]))
	delete(l.runs, run)
	delete(h.byRun, run)
	if len(l.runs) == 0 {
		h.removeList(e)
	}
}

func (h *histories) removeList(e *list.Element) {
	l := h.order.Remove(e).(*messageList)
	delete(h.byID, l.id)
	for run := range l.runs {
		delete(h.byRun, run)
	}
	h.size -= l.held + l.own
}

func (h *histories) grow(l *messageList, held, own int) {
	l.held, l.own, h.size = l.held+held, l.own+own, h.size+held+own
}

func historySize(run string, h lineage.History) int { return historyOverhead + len(run) + len(h.State) }

// History implements fold.Directory and lineage.Known.
func (t *thread) History(runID string) (lineage.History, error) { return t.p.history(t.key, runID) }

// history returns the current history of a run in memory, else that of the run's record and its chain of bases. Its thread need not be in
// memory.
func (p *Processor) history(thread, runID string) (lineage.History, error) {
	key := runKey(thread, runID)
	if r := p.runs.byKey[key]; r != nil && r.Fold != nil {
		return lineage.History{Messages: r.Fold.Messages(), State: r.Fold.State()}, nil
	}
	// Go down the chain of bases until a history is in memory, then restore the histories upwards.
	var chain []lineage.Content
	sealed := true
	at := lineage.History{}.Share()
	for {
		if h, ok := p.histories.get(key); ok {
			at = h
			break
		}
		rec, _, err := p.recordOf(key)
		if err != nil {
			return lineage.History{}, err
		}
		if len(chain) == 0 {
			sealed = rec.Open == nil
		}
		chain = append(chain, fold.ContentOf(rec)) // not the whole record: chains may be long
		if rec.Base == "" {
			break
		}
		key = runKey(thread, rec.Base)
	}
	if !sealed {
		at = at.Unshare() // later runs do not build on the record of an open run
	}
	slices.Reverse(chain)
	at, err := lineage.RestoreFrom(at, chain...)
	if err != nil {
		return lineage.History{}, fmt.Errorf("restoring history: %w", err)
	}
	if len(chain) > 0 && sealed {
		at = at.Share()
		p.histories.put(runKey(thread, runID), at)
	}
	return at, nil
}

// recordOf returns a run's latest record, committed or part of the next transaction, and the size of a committed one.
func (p *Processor) recordOf(key string) (*record.Run, int, error) {
	if value := p.unsaved.records[key]; value != nil {
		rec, err := record.DecodeRun(value)
		return rec, 0, err
	}
	return p.store.Record(key)
}
