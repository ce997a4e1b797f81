package compact

import (
	"fmt"
	"iter"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
)

// conversation is the list of messages with what finds one in it without a walk. What an event does to it
// costs the same however long it is, but for a MESSAGES_SNAPSHOT, which makes it anew.
type conversation struct {
	start, last *link
	count       int
	first       map[string]*link // by id: the first in the list
	// owners finds a tool call and the message that holds it, by call id: the first in the list.
	// It is made when the first tool event asks, since a run without tools needs none.
	owners map[string]*owned
	// recent is what find gave last: deltas of one message follow each other.
	recent *message
	// contents is how many bytes the contents of activities have; -1 until somebody asks.
	contents int
}

// link is one place of the list.
type link struct {
	m          *message
	prev, next *link
	in         *stretch
	// again is the next place that holds the same message. A snapshot that names an id which the list
	// held twice leaves one message in both, and what is appended to it shows in both.
	again *link
}

// stretch is a message and the tool messages behind it, up to the next message of another role: a result
// goes to the end of its caller's. (The list may begin with tool messages; they are a stretch as well.)
type stretch struct {
	last  *link
	order uint64 // grows along the list
}

// apart is how far the orders of neighbours are from each other at first, so that others fit in between.
const apart = 1 << 32

type owned struct {
	m    *message
	at   int       // in the message's calls
	call *toolCall // nil until the message is opened
	// caller is the same of the first assistant message that holds the call; nil if none does.
	caller *owned
}

// open makes the call ready for a change, if there is one.
func (o *owned) open() (*message, *toolCall) {
	if o == nil {
		return nil, nil
	}
	if o.call == nil {
		o.m.read()
		o.call = o.m.calls.list[o.at]
	}
	return o.m, o.call
}

func newConversation(messages []agui.Message) *conversation {
	list := make([]*message, len(messages))
	for i, m := range messages {
		list[i] = fromMessage(m)
	}
	c := &conversation{}
	c.reset(list)
	return c
}

// reset puts another list in place.
func (c *conversation) reset(list []*message) {
	*c = conversation{first: make(map[string]*link, len(list)+8), contents: -1}
	places := make([]link, len(list))
	for _, m := range list {
		m.at = nil
	}
	for i, m := range slices.Backward(list) {
		places[i] = link{m: m, again: m.at}
		m.at = &places[i]
	}
	for i := range places {
		c.append(&places[i])
	}
}

// messages goes through the list.
func (c *conversation) messages() iter.Seq[*message] {
	return func(yield func(*message) bool) {
		for p := c.start; p != nil && yield(p.m); p = p.next {
		}
	}
}

// same returns the places that hold one message, each with the first place of it, counted from 0.
func (c *conversation) same() [][2]int {
	if len(c.first) == c.count { // no id stands in the list twice
		return nil
	}
	var pairs [][2]int
	at := make(map[*message]int, c.count)
	i := 0
	for m := range c.messages() {
		if first, ok := at[m]; ok {
			pairs = append(pairs, [2]int{first, i})
		} else {
			at[m] = i
		}
		i++
	}
	return pairs
}

// join puts one message in the places that same has told of.
func (c *conversation) join(pairs [][2]int) error {
	if len(pairs) == 0 {
		return nil
	}
	list := slices.Collect(c.messages())
	for _, p := range pairs {
		if p[0] < 0 || p[1] < 0 || p[0] >= len(list) || p[1] >= len(list) {
			return fmt.Errorf("there are %d messages, none at %d or %d", len(list), p[0], p[1])
		}
		list[p[1]] = list[p[0]]
	}
	c.reset(list)
	return nil
}

func (c *conversation) export() []agui.Message {
	out := make([]agui.Message, 0, c.count)
	for m := range c.messages() {
		out = append(out, m.export())
	}
	return out
}

func (c *conversation) find(id string) *message {
	if c.recent == nil || c.recent.id != id {
		p := c.first[id]
		if p == nil {
			return nil
		}
		c.recent = p.m
	}
	return c.recent
}

func (c *conversation) push(m *message) {
	m.at = &link{m: m}
	c.append(m.at)
	c.grow(m.contentBytes())
	if c.owners != nil && m.obj == nil { // it may come with calls of its own
		c.own(m)
	}
}

// append puts a link at the end.
func (c *conversation) append(p *link) {
	switch {
	case c.last == nil:
		c.start = p
		p.in = &stretch{order: apart}
	case p.m.role == agui.RoleTool:
		p.in = c.last.in
	default:
		p.in = &stretch{order: c.last.in.order + apart}
	}
	if p.prev = c.last; p.prev != nil {
		p.prev.next = p
	}
	p.in.last, c.last = p, p
	c.count++
	if c.first[p.m.id] == nil {
		c.first[p.m.id] = p
	}
}

// insertResult puts the result of a tool call behind the message that holds the call and behind the tool
// messages that follow it. The result holds no calls of its own.
func (c *conversation) insertResult(caller, m *message) {
	in := caller.at.in
	p := &link{m: m, in: in, prev: in.last, next: in.last.next}
	if p.prev.next = p; p.next != nil {
		p.next.prev = p
	} else {
		c.last = p
	}
	m.at, in.last = p, p
	c.count++
	if first := c.first[m.id]; first == nil || first.in.order > in.order {
		c.first[m.id], c.recent = p, nil
	}
}

// replace puts an activity in the first place of the message of its id, whose content as an activity had so
// many bytes.
func (c *conversation) replace(p *link, m *message, had int) {
	before := p.m
	c.grow(m.contentBytes() - had)
	if c.owners != nil && before.hasCalls() {
		c.owners = nil
	}
	before.at, p.again = p.again, nil
	p.m, m.at = m, p
	c.recent = nil
	if before.role == agui.RoleTool {
		c.split(p)
	}
}

// contentBytes returns how many bytes the contents of all activities have.
func (c *conversation) contentBytes() int {
	if c.contents < 0 {
		c.contents = 0
		for m := range c.messages() {
			c.contents += m.contentBytes()
		}
	}
	return c.contents
}

// grow notes that contents of activities became so many bytes more.
func (c *conversation) grow(by int) {
	if c.contents >= 0 {
		c.contents += by
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
	part := &stretch{last: in.last, order: in.order}
	if outside(after) {
		in.last = p.prev
		for q := p; q != after; q = q.next {
			q.in = part
		}
	} else {
		part.last = p.prev
		for q := p.prev; q != before; q = q.prev {
			q.in = part
		}
	}
	between := uint64(apart)
	if next := p.in.last.next; next != nil {
		between = (next.in.order - p.prev.in.order) / 2
	}
	if p.in.order = p.prev.in.order + between; between == 0 {
		c.renumber()
	}
}

// renumber makes room between the orders.
func (c *conversation) renumber() {
	order := uint64(apart)
	for p := c.start; p != nil; p = p.in.last.next {
		p.in.order = order
		order += apart
	}
}

// owner returns the first message that holds a tool call of that id, and the call.
func (c *conversation) owner(callID string) (*message, *toolCall) {
	return c.owned(callID).open()
}

// caller returns the first assistant message that holds a tool call of that id, and the call.
func (c *conversation) caller(callID string) (*message, *toolCall) {
	o := c.owned(callID)
	if o != nil {
		o = o.caller
	}
	return o.open()
}

func (c *conversation) owned(callID string) *owned {
	if c.owners == nil {
		c.owners = make(map[string]*owned)
		for m := range c.messages() {
			c.own(m)
		}
	}
	return c.owners[callID]
}

// own notes the calls that a message came with.
func (c *conversation) own(m *message) {
	if !m.hasCalls() {
		return
	}
	calls := m.calls
	if calls == nil {
		calls = parseCalls(agui.Lookup(m.raw, "toolCalls"))
	}
	for i, call := range calls.list {
		c.ownCall(owned{m: m, at: i}, call.id)
	}
}

func (c *conversation) ownCall(o owned, callID string) {
	first := c.owners[callID]
	if first == nil {
		first = &o
		c.owners[callID] = first
	}
	if first.caller == nil && o.m.role == agui.RoleAssistant {
		first.caller = &o
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
		c.ownCall(owned{m: m, call: call}, call.id)
	}
}
