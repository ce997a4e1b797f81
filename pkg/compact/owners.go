package compact

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
)

// owners are those that hold a tool call of an id, and those of them that are assistant messages. The first
// counts that has not lost it.
type owners struct{ all, callers []*owned }

type owned struct {
	by    *link
	calls int       // the number of by when it was noted
	at    int       // in the message's calls
	call  *toolCall // nil until the message is opened
}

// holder returns the first that still holds its call, if there is one. It forgets those before it.
func holder(list *[]*owned) *owned {
	for ; len(*list) > 0; *list = (*list)[1:] {
		if o := (*list)[0]; o.calls == o.by.calls {
			return o
		}
	}
	return nil
}

// held returns a message and its call, ready for a change.
func (c *conversation) held(o *owned) (*message, *toolCall) {
	if o == nil {
		return nil, nil
	}
	if o.call == nil {
		o.by.m.read()
		o.call = o.by.m.calls.list[o.at]
	}
	c.found(o.by.m)
	return o.by.m, o.call
}

// oddCall is a tool call of a message in an odd place.
type oddCall struct {
	owned
	id    string
	place int // in oddCalls
}

// oddCalls are those of one id, a heap: the first in the list is the first. Each is the head of a stretch of its
// own, and the places that stay keep their order.
type oddCalls []*oddCall

func (h oddCalls) Len() int           { return len(h) }
func (h oddCalls) Less(i, j int) bool { return h[i].by.in.order < h[j].by.in.order }
func (h oddCalls) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *oddCalls) Push(x any) {
	o := x.(*oddCall)
	o.place = len(*h)
	*h = append(*h, o)
}

func (h *oddCalls) Pop() any {
	last := len(*h) - 1
	o := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return o
}

// owner returns the first message that holds a tool call of that id, and the call.
func (c *conversation) owner(callID string) (*message, *toolCall) {
	var first *owned
	if o := c.owned(callID); o != nil {
		first = holder(&o.all)
	}
	if o := c.oddOwner(callID); o != nil && (first == nil || o.by.in.order <= first.by.in.order) {
		first = o // which is the head, where both are of one stretch
	}
	return c.held(first)
}

// caller returns the first assistant message that holds a tool call of that id, and the call.
func (c *conversation) caller(callID string) (*message, *toolCall) {
	if o := c.owned(callID); o != nil {
		return c.held(holder(&o.callers))
	}
	return nil, nil
}

// oddOwner returns the first in an odd place that holds a tool call of that id.
func (c *conversation) oddOwner(callID string) *owned {
	for p := range c.unread {
		calls := callsOf(p)
		odd := make([]*oddCall, 0, len(calls))
		seen := make(map[string]bool, len(calls)) // of one message's the first counts
		for i, call := range calls {
			if call.odd != nil || seen[call.id] {
				continue
			}
			seen[call.id] = true
			h := c.oddOwners[call.id]
			if h == nil {
				h = &oddCalls{}
				c.oddOwners[call.id] = h
			}
			o := &oddCall{owned: owned{by: p, at: i}, id: call.id}
			heap.Push(h, o)
			odd = append(odd, o)
		}
		c.odd[p] = odd
	}
	if len(c.unread) > 0 {
		c.unread = make(map[*link]bool) // to go through one that was large costs what it was
	}
	if h := c.oddOwners[callID]; h != nil {
		return &(*h)[0].owned
	}
	return nil
}

func (c *conversation) owned(callID string) *owners {
	if c.base.hasCall(callID) {
		c.unshare()
	}
	if c.owners == nil {
		c.owners = make(map[string]*owners)
		c.ownAll()
	}
	return c.owners[callID]
}

// ownAll notes the calls of all messages that a snapshot does not keep, in order: who sends snapshots and tool
// calls in turn pays for what the snapshots brought.
func (c *conversation) ownAll() {
	var firsts []*link // of each stretch; what is of another kind is its head
	if k := c.kinds[kind{}]; k != nil {
		for _, p := range k.links {
			if p.prev == nil || p.prev.in != p.in || p.prev.kin != k {
				firsts = append(firsts, p)
			}
		}
	}
	slices.SortFunc(firsts, func(a, b *link) int { return cmp.Compare(a.in.order, b.in.order) })
	for _, p := range firsts {
		for in := p.in; p != nil && p.in == in; p = p.next {
			c.own(p)
		}
	}
}

// own notes the calls that the message at a place came with, unless the place is an odd one.
func (c *conversation) own(p *link) {
	if p.kin.of != (kind{}) {
		return
	}
	for i, call := range callsOf(p) {
		if call.odd == nil {
			c.ownCall(&owned{by: p, calls: p.calls, at: i}, call.id)
		}
	}
}

// callsOf returns the tool calls of the message at a place, which stays as it is.
func callsOf(p *link) []*toolCall {
	switch {
	case !p.m.hasCalls():
		return nil
	case p.m.calls != nil:
		return p.m.calls.list
	}
	return parseCalls(agui.Lookup(p.m.raw, "toolCalls")).list
}

func (c *conversation) ownCall(o *owned, callID string) {
	held := c.owners[callID]
	if held == nil {
		held = &owners{}
		c.owners[callID] = held
	}
	held.all = append(held.all, o)
	if o.by.m.role == agui.RoleAssistant {
		held.callers = append(held.callers, o)
	}
}

// addCall appends a tool call that no message holds to a message.
func (c *conversation) addCall(m *message, call *toolCall) {
	obj := m.open()
	if m.calls == nil {
		m.calls = &callList{}
		obj.set("toolCalls", m.calls)
	}
	m.calls.list = append(m.calls.list, call)
	if c.owners != nil {
		for at := m.at; at != nil; at = at.again {
			c.ownCall(&owned{by: at, calls: at.calls, call: call}, call.id)
		}
	}
}
