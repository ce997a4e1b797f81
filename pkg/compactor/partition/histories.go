package partition

import (
	"container/list"
	"sync"

	"github.com/skeinhq/skein/pkg/lineage"
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
