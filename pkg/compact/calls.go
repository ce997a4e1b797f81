package compact

import (
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
)

// holder is a message that holds a tool call, and the call's index among the message's calls. By the schema only assistant
// messages hold calls, but the client finds calls in any message.
type holder struct {
	m  *message
	at int
}

// owner returns the first message that holds a tool call with the id, and the call. Both are ready to be changed.
func (c *conversation) owner(callID string) (*message, *toolCall) { return c.held(callID, false) }

// caller is like owner, but considers only assistant messages.
func (c *conversation) caller(callID string) (*message, *toolCall) { return c.held(callID, true) }

func (c *conversation) held(callID string, assistant bool) (*message, *toolCall) {
	if c.base.hasCall(callID) {
		c.unshare()
	}
	if !c.holding {
		c.holding = true
		for _, m := range c.list {
			c.hold(m)
		}
	}
	var first holder
	for _, h := range c.holders.At(callID) {
		if assistant && h.m.role != agui.RoleAssistant {
			continue
		}
		if first.m == nil || c.position(h.m) < c.position(first.m) {
			first = h
		}
	}
	if first.m == nil {
		return nil, nil
	}
	first.m.read()
	c.enlarge(first.m)
	return first.m, first.m.calls.list[first.at]
}

// position returns the first position of a message. Unlike index it does not search, but numbers all messages if an event has moved any.
func (c *conversation) position(m *message) int {
	if !c.numbered {
		for i, m := range slices.Backward(c.list) {
			m.at = i
		}
		c.numbered = true
	}
	return m.at
}

// hold records the tool calls of a message of the list. Of several calls with one id, only the first counts.
func (c *conversation) hold(m *message) {
	if !c.holding {
		return
	}
	for i, call := range callsOf(m) {
		held := c.holders.At(call.id)
		if n := len(held); call.odd == nil && (n == 0 || held[n-1].m != m) {
			c.holders.Set(call.id, append(held, holder{m, i}))
		}
	}
}

// release removes messages that have left the list from the holders of these calls.
func (c *conversation) release(callIDs []string) {
	slices.Sort(callIDs)
	for _, id := range slices.Compact(callIDs) {
		held := slices.DeleteFunc(c.holders.At(id), func(h holder) bool { return h.m.places == 0 })
		if len(held) == 0 {
			c.holders.Delete(id)
		} else {
			c.holders.Set(id, held)
		}
	}
}

// addCall appends a tool call to a message. No message may hold the call yet.
func (c *conversation) addCall(m *message, call *toolCall) {
	obj := m.open()
	if m.calls == nil {
		m.calls = &callList{}
		obj.set("toolCalls", m.calls)
	}
	m.calls.list = append(m.calls.list, call)
	if c.holding { // the search for the message may have unshared the base
		c.holders.Set(call.id, append(c.holders.At(call.id), holder{m, len(m.calls.list) - 1}))
	}
}

// callsOf returns the tool calls of a message without opening it.
func callsOf(m *message) []*toolCall {
	switch {
	case m.calls != nil:
		return m.calls.list
	case m.obj != nil || !m.hasCalls():
		return nil
	}
	return parseCalls(agui.Lookup(m.raw, "toolCalls")).list
}

func callIDs(m *message) []string {
	var ids []string
	for _, call := range callsOf(m) {
		ids = append(ids, call.id)
	}
	return ids
}
