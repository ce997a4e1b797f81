package compact

import "github.com/skeinhq/skein/pkg/agui"

// stretch is a message and the tool messages behind it, up to the next message of another role: a result
// goes to the end of its caller's. (The list may begin with tool messages; they are a stretch as well.)
type stretch struct {
	first, last *link
	order       uint64 // grows along the list
}

func (s *stretch) before() *stretch {
	if s.first.prev == nil {
		return nil
	}
	return s.first.prev.in
}

func (s *stretch) behind() *stretch {
	if s.last.next == nil {
		return nil
	}
	return s.last.next.in
}

// apart is how far the orders of neighbours are from each other at first, so that others fit in between.
const apart = 1 << 32

// settle finds the stretches of places that have none. All that have one are heads of theirs.
func (c *conversation) settle(places []*link) {
	var tight []*stretch
	for _, p := range places {
		if p.in != nil {
			continue
		}
		for p.prev != nil && p.prev.in == nil {
			p = p.prev
		}
		order, heads, end := uint64(0), uint64(0), p
		if p.prev != nil {
			order = p.prev.in.order
			p.prev.in.last = p.prev
		}
		for ; end != nil && end.in == nil; end = end.next {
			if end.prev == nil || end.m.role != agui.RoleTool {
				heads++
			}
		}
		between := uint64(apart)
		if end != nil {
			between = (end.in.order - order) / (heads + 1)
		}
		for ; p != end; p = p.next {
			c.number(p)
			if p.prev == nil || p.m.role != agui.RoleTool {
				order += between
				p.in = &stretch{first: p, order: order}
				if between == 0 {
					tight = append(tight, p.in)
				}
			} else {
				p.in = p.prev.in
			}
			p.in.last = p
		}
	}
	for _, s := range tight { // all places have one by now
		makeRoom(s)
	}
}

// split makes p the head of a stretch. Of the two parts the shorter one is told, so that however often
// stretches are split, a place is told no more than a logarithm of times.
func (c *conversation) split(p *link) {
	in := p.in
	outside := func(q *link) bool { return q == nil || q.in != in }
	if outside(p.prev) {
		return
	}
	before, after := p.prev, p.next
	for !outside(before) && !outside(after) {
		before, after = before.prev, after.next
	}
	part := &stretch{first: p, last: in.last, order: in.order}
	if outside(after) {
		in.last = p.prev
		for q := p; q != after; q = q.next {
			q.in = part
		}
	} else {
		part.first, part.last, in.first = in.first, p.prev, p
		for q := p.prev; q != before; q = q.prev {
			q.in = part
		}
	}
	between := uint64(apart)
	if next := p.in.behind(); next != nil {
		between = (next.order - p.prev.in.order) / 2
	}
	if p.in.order = p.prev.in.order + between; between == 0 {
		makeRoom(p.in)
	}
}

// makeRoom spreads the orders around a stretch, whose own may be that of its neighbours, over the smallest range that is
// thin enough. However stretches are split, each moves a logarithm of orders on average: M. Bender et al., Two
// Simplified Algorithms for Maintaining Order in a List, 2002.
func makeRoom(s *stretch) {
	first, last, n := s, s, uint64(1)
	for bits := 8; ; bits++ {
		lowest := s.order >> bits << bits
		for p := first.before(); p != nil && p.order >= lowest; p = first.before() {
			first, n = p, n+1
		}
		for p := last.behind(); p != nil && p.order-lowest < 1<<bits; p = last.behind() {
			last, n = p, n+1
		}
		if n > 1<<(bits/2) {
			continue
		}
		between := (1 << bits) / (n + 1)
		for p := first; ; p = p.behind() {
			lowest += between
			if p.order = lowest; p == last {
				return
			}
		}
	}
}
