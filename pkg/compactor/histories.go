package compactor

import (
	"container/list"

	"github.com/skeinhq/skein/pkg/lineage"
)

// histories keeps the histories of recently ended runs, so that the next turn of a conversation
// does not read its whole chain. The least recently used go first once they exceed their bound.
type histories struct {
	limit, size int
	order       *list.List // of *cached, most recently used first
	byKey       map[string]*list.Element
}

type cached struct {
	key     string
	history lineage.History
	size    int
}

func newHistories(limit int) *histories {
	return &histories{limit: limit, order: list.New(), byKey: make(map[string]*list.Element)}
}

func (c *histories) get(key string) (lineage.History, bool) {
	e, ok := c.byKey[key]
	if !ok {
		return lineage.History{}, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached).history, true
}

func (c *histories) put(key string, h lineage.History) {
	c.drop(key)
	// What messages share with another run's history is counted twice: a bound, not a measure.
	size := len(key) + len(h.State) + h.Bytes() + 64*len(h.Messages)
	c.byKey[key] = c.order.PushFront(&cached{key, h, size})
	c.size += size
	c.shrink()
}

// bound changes how much may be kept.
func (c *histories) bound(limit int) {
	c.limit = limit
	c.shrink()
}

func (c *histories) shrink() {
	for c.size > c.limit && c.order.Len() > 0 {
		c.remove(c.order.Back())
	}
}

// drop forgets the history of a run, if it is there.
func (c *histories) drop(key string) {
	if e, ok := c.byKey[key]; ok {
		c.remove(e)
	}
}

func (c *histories) remove(e *list.Element) {
	v := c.order.Remove(e).(*cached)
	delete(c.byKey, v.key)
	c.size -= v.size
}
