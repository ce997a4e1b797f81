package compact

import (
	"cmp"
	"container/heap"
)

// twins are the places of an id that stands in several, a heap: the first in the list is the first. The places that stay
// keep their order, so that nothing has to be moved in it when the list is.
type twins []*link

func (h twins) Len() int           { return len(h) }
func (h twins) Less(i, j int) bool { return h[i].compare(h[j]) < 0 }
func (h twins) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].twin, h[j].twin = i, j
}

func (h *twins) Push(x any) {
	p := x.(*link)
	p.twin = len(*h)
	*h = append(*h, p)
}

func (h *twins) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return p
}

// compare compares places by where they stand in the list.
func (p *link) compare(q *link) int {
	return cmp.Or(cmp.Compare(p.in.order, q.in.order), cmp.Compare(p.number, q.number))
}

// enter makes a place of an id known, and says whether it is the first.
func (c *conversation) enter(p *link) bool {
	id := p.m.id
	first := c.first[id]
	if first == nil {
		c.first[id] = p
		return true
	}
	h := c.twins[id]
	if h == nil {
		h = &twins{first}
		first.twin = 0
		c.twins[id] = h
	}
	heap.Push(h, p)
	c.first[id] = (*h)[0]
	return c.first[id] == p
}

// exit is the end of enter.
func (c *conversation) exit(p *link) {
	id := p.m.id
	h := c.twins[id]
	if h == nil {
		delete(c.first, id)
		return
	}
	heap.Remove(h, p.twin)
	c.first[id] = (*h)[0]
	if h.Len() == 1 {
		delete(c.twins, id)
	}
}

// appendPlaces appends all places of an id, in no order.
func (c *conversation) appendPlaces(dst []*link, id string) []*link {
	if h := c.twins[id]; h != nil {
		return append(dst, *h...)
	}
	if p := c.first[id]; p != nil {
		return append(dst, p)
	}
	return dst
}

// repeat notes that a message has so many bytes more in places beyond its first.
func (c *conversation) repeat(m *message, bytes int) {
	c.repeated += bytes
	if keeps(m) {
		c.kept += bytes
	}
}
