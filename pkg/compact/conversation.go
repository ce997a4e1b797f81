package compact

import (
	"fmt"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
)

// conversation is the list of messages with what finds one in it without a walk.
type conversation struct {
	list  []*message
	first map[string]*message // by id: the first in the list
	// owners finds a tool call and the message that holds it, by call id: the first in the list.
	// It is made when the first tool event asks, since a run without tools needs none.
	owners map[string]owned
	// result says where the last one was inserted: the next of the same caller goes behind it, without a
	// walk over all results in between. It holds while messages are only put at the end.
	result struct {
		caller *message
		at     int
	}
	// recent is what find gave last: deltas of one message follow each other.
	recent *message
}

type owned struct {
	m    *message
	call *toolCall // nil until the message is opened
}

func newConversation(messages []agui.Message) *conversation {
	c := &conversation{list: make([]*message, 0, len(messages)+8), first: make(map[string]*message, len(messages)+8)}
	for _, m := range messages {
		c.push(fromMessage(m))
	}
	return c
}

// same returns the places that hold one message, each with the first place of it. A snapshot that
// names an id which the list held twice leaves one message in both, and what is appended to it shows
// in both.
func (c *conversation) same() [][2]int {
	if !c.hasDoubles() {
		return nil
	}
	var pairs [][2]int
	at := make(map[*message]int, len(c.list))
	for i, m := range c.list {
		if first, ok := at[m]; ok {
			pairs = append(pairs, [2]int{first, i})
		} else {
			at[m] = i
		}
	}
	return pairs
}

// join puts one message in the places that same has told of.
func (c *conversation) join(pairs [][2]int) error {
	for _, p := range pairs {
		if p[0] < 0 || p[1] < 0 || p[0] >= len(c.list) || p[1] >= len(c.list) {
			return fmt.Errorf("there are %d messages, none at %d or %d", len(c.list), p[0], p[1])
		}
		c.list[p[1]] = c.list[p[0]]
	}
	return nil
}

func (c *conversation) export() []agui.Message {
	out := make([]agui.Message, len(c.list))
	for i, m := range c.list {
		out[i] = m.export()
	}
	return out
}

func (c *conversation) find(id string) *message {
	if c.recent == nil || c.recent.id != id {
		c.recent = c.first[id]
	}
	return c.recent
}

func (c *conversation) push(m *message) {
	if c.owners != nil && m.obj == nil && m.hasCalls() { // it comes with calls of its own
		c.owners = nil
	}
	c.list = append(c.list, m)
	if _, ok := c.first[m.id]; !ok {
		c.first[m.id] = m
	}
}

// insertResult puts the result of a tool call behind the message that holds the call and behind the tool
// messages that follow it. The result holds no calls of its own.
func (c *conversation) insertResult(caller, m *message) {
	last := &c.result
	if last.caller != caller {
		last.caller, last.at = caller, c.place(caller)
	}
	i := last.at + 1
	for i < len(c.list) && c.list[i].role == agui.RoleTool {
		i++
	}
	c.list = slices.Insert(c.list, i, m)
	last.at = i
	if first, ok := c.first[m.id]; !ok || slices.Index(c.list, first) > i {
		c.first[m.id], c.recent = m, nil
	}
}

// index returns the place of the first message of that id, or -1.
func (c *conversation) index(id string) int {
	if m := c.first[id]; m != nil {
		return c.place(m)
	}
	return -1
}

// place returns the first place of a message, or -1.
func (c *conversation) place(m *message) int {
	if !c.hasDoubles() { // recent messages are asked for most
		for i := len(c.list) - 1; i >= 0; i-- {
			if c.list[i] == m {
				return i
			}
		}
	}
	return slices.Index(c.list, m)
}

// hasDoubles reports whether an id stands in the list twice.
func (c *conversation) hasDoubles() bool { return len(c.first) != len(c.list) }

// replaceAt puts m in the place of the first message of its id.
func (c *conversation) replaceAt(i int, m *message) {
	if c.owners != nil && c.list[i].hasCalls() {
		c.owners = nil
	}
	c.list[i] = m
	c.first[m.id] = m
	c.result.caller = nil
	c.recent = nil
}

// reset puts another list in place.
func (c *conversation) reset(list []*message) {
	c.list = list
	c.owners = nil
	c.result.caller = nil
	c.reindex()
}

func (c *conversation) reindex() {
	clear(c.first)
	c.recent = nil
	for _, m := range c.list {
		if _, ok := c.first[m.id]; !ok {
			c.first[m.id] = m
		}
	}
}

// owner returns the first message that holds a tool call of that id, and the call.
func (c *conversation) owner(callID string) (*message, *toolCall) {
	if c.owners == nil {
		c.owners = make(map[string]owned)
		for _, m := range c.list {
			if !m.hasCalls() {
				continue
			}
			calls := m.calls
			if calls == nil {
				calls = parseCalls(agui.Lookup(m.raw, "toolCalls"))
			}
			for _, call := range calls.list {
				if _, ok := c.owners[call.id]; !ok {
					c.owners[call.id] = owned{m: m}
				}
			}
		}
	}
	o := c.owners[callID]
	if o.m != nil && o.call == nil {
		o.m.read()
		o.call = o.m.calls.find(callID)
		c.owners[callID] = o
	}
	return o.m, o.call
}

// addCall appends a tool call to a message.
func (c *conversation) addCall(m *message, call *toolCall) {
	obj := m.open()
	if m.calls == nil {
		m.calls = &callList{}
		obj.set("toolCalls", m.calls)
	}
	m.calls.list = append(m.calls.list, call)
	if c.owners != nil {
		if _, ok := c.owners[call.id]; !ok {
			c.owners[call.id] = owned{m, call}
		}
	}
}
