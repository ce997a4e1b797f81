package partition

import (
	"container/list"
	"fmt"
	"slices"
	"sync"

	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Histories keeps the histories of recently ended runs, of all partitions of a process, so that the next
// turn of a conversation does not read its whole chain. The least recently used go first once they exceed
// their bound. The one that was used last stays in any case, however large: a conversation over the bound
// would else be read from its beginning at each turn.
//
// The histories of one conversation share their list of messages, which counts once, and leaves with the
// last of them. Lists that differ count in full, whatever messages they have in common.
type Histories struct {
	limit int

	mu    sync.Mutex // a partition may be opened beside the actor
	size  int
	order *list.List // of *cached, most recently used first
	byKey map[historyKey]*list.Element
	lists map[any]*shared
	parts int // that ever kept something here
}

// historyKey is a run's record key, of one life of its partition: what another one kept may never have been
// committed. Nobody asks for that, so it leaves in time.
type historyKey struct {
	part int
	run  string
}

type cached struct {
	key     historyKey
	history lineage.History
	list    any // what it shares
	size    int // without that
}

// shared is a list of messages that cached histories share.
type shared struct{ histories, size int }

// cachedOverhead is about what a history takes beside its messages and state.
const cachedOverhead = 512

// NewHistories returns histories that hold about so many bytes.
func NewHistories(limit int) *Histories {
	return &Histories{limit: limit, order: list.New(), byKey: map[historyKey]*list.Element{}, lists: map[any]*shared{}}
}

// ownHistories are those of one partition. A history itself is used by that one alone.
type ownHistories struct {
	all  *Histories
	part int
}

func (c *Histories) own() ownHistories {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts++
	return ownHistories{c, c.parts}
}

func (o ownHistories) get(run string) (lineage.History, bool) {
	c := o.all
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byKey[historyKey{o.part, run}]
	if !ok {
		return lineage.History{}, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached).history, true
}

// put takes in a history that is shared (lineage.History.Share).
func (o ownHistories) put(run string, h lineage.History) {
	o.drop(run)
	id, held := h.List()
	size := cachedOverhead + len(run) + len(h.State)
	c := o.all
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lists[id]
	if l == nil {
		l = &shared{}
		c.lists[id] = l
	}
	c.size += size + held - l.size // the list may have grown
	l.size = held
	l.histories++
	key := historyKey{o.part, run}
	c.byKey[key] = c.order.PushFront(&cached{key, h, id, size})
	for c.size > c.limit && c.order.Len() > 1 {
		c.remove(c.order.Back())
	}
}

// drop forgets the history of a run, if it is there.
func (o ownHistories) drop(run string) {
	c := o.all
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byKey[historyKey{o.part, run}]; ok {
		c.remove(e)
	}
}

func (c *Histories) remove(e *list.Element) {
	v := c.order.Remove(e).(*cached)
	delete(c.byKey, v.key)
	c.size -= v.size
	l := c.lists[v.list]
	if l.histories--; l.histories == 0 {
		c.size -= l.size
		delete(c.lists, v.list)
	}
}

// history returns a placed run's history as it stands: of a live run out of its fold, of any other
// out of its record and the chain of bases below.
func (p *Processor) history(t *thread, runID string) (lineage.History, error) {
	key, err := record.RunKey(t.tenant, t.id, runID)
	if err != nil {
		return lineage.History{}, fmt.Errorf("restoring history: %w", err)
	}
	if r := p.runs[key]; r != nil && r.fold != nil {
		return lineage.History{Messages: r.fold.Messages(), State: r.fold.State()}, nil
	}
	// Down the chain until a history is at hand, then up again.
	var chain []lineage.Content
	sealed := true
	at := lineage.History{}.Share()
	for key != "" {
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
		chain = append(chain, contentOf(rec)) // of a long chain no more is held than that
		key = ""
		if rec.Base != "" {
			if key, err = record.RunKey(t.tenant, t.id, rec.Base); err != nil {
				return lineage.History{}, fmt.Errorf("restoring history: %w", err)
			}
		}
	}
	if !sealed {
		at = at.Unshare() // nobody goes on from what an open run says for now
	}
	slices.Reverse(chain)
	if at, err = lineage.RestoreFrom(at, chain...); err != nil {
		return lineage.History{}, fmt.Errorf("restoring history: %w", err)
	}
	if len(chain) > 0 && sealed {
		at = at.Share()
		if key, err = record.RunKey(t.tenant, t.id, runID); err == nil {
			p.histories.put(key, at)
		}
	}
	return at, nil
}

func contentOf(rec *record.Run) lineage.Content {
	return lineage.Content{RunID: rec.RunID, Base: rec.Base, Messages: rec.Messages, Layout: rec.Layout, State: rec.State}
}

// recordOf returns a run's latest record, committed or about to be, and the size of a committed one.
func (p *Processor) recordOf(key string) (*record.Run, int, error) {
	if value := p.unsaved[key]; value != nil {
		rec, err := record.DecodeRun(value)
		return rec, 0, err
	}
	return p.store.Record(key)
}
