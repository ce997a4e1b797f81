package compact

import (
	"encoding/json"

	"github.com/skeinhq/skein/pkg/agui"
)

// message is one message of the conversation. It stays as it came until something changes it.
type message struct {
	id, role string
	raw      json.RawMessage // what it is as JSON; nil while it must be written anew
	obj      *object         // nil until it is opened for a change
	text     *textValue      // the growing content, where the message is open and it is a string
	calls    *callList       // the tool calls, where the message is open and has any
	at       *link           // the first in the list that holds it
	// more is how many others do, and size what it counts for in each of them: its bytes when a snapshot put it
	// there, and those of the events that came for it since.
	more, size int
}

func newMessage(id, role string, members ...member) *message {
	m := &message{id: id, role: role, obj: &object{members: members}}
	m.text, _ = m.obj.get("content").(*textValue)
	return m
}

func fromMessage(m agui.Message) *message {
	return &message{id: m.ID, role: m.Role, raw: m.Raw}
}

// export returns the message as it stands.
func (m *message) export() agui.Message {
	if m.raw == nil {
		m.raw = m.obj.appendJSON(make([]byte, 0, 128))
	}
	return agui.Message{ID: m.id, Role: m.role, Raw: m.raw}
}

// open makes the message ready for a change and forgets its written form.
func (m *message) open() *object {
	obj := m.read()
	m.raw = nil
	return obj
}

// read makes the message's members ready to be looked at.
func (m *message) read() *object {
	if m.obj == nil {
		m.obj = parse(m.raw)
		if c, ok := m.obj.get("toolCalls").(rawValue); ok && agui.IsArray(json.RawMessage(c)) {
			m.calls = parseCalls(json.RawMessage(c))
			m.obj.set("toolCalls", m.calls)
		}
	}
	return m.obj
}

// appendText appends a delta to the content. Content that is no string (absent, or parts) is
// replaced, as the client's reducer has it.
func (m *message) appendText(delta agui.Text) {
	obj := m.open()
	if m.text == nil {
		m.text = &textValue{}
		if c, ok := obj.get("content").(rawValue); ok && agui.IsString(json.RawMessage(c)) {
			m.text.body = append(m.text.body, agui.TextOf(json.RawMessage(c))...)
		}
		obj.set("content", m.text)
	}
	m.text.body = append(m.text.body, delta...)
}

// activityType returns the type of an activity message.
func (m *message) activityType() string {
	if m.obj != nil {
		switch v := m.obj.get("activityType").(type) {
		case stringValue:
			return string(v)
		case rawValue:
			return stringOf(json.RawMessage(v))
		}
		return ""
	}
	return stringOf(agui.Lookup(m.raw, "activityType"))
}

func stringOf(v json.RawMessage) string {
	if !agui.IsString(v) {
		return ""
	}
	return agui.TextOf(v).String()
}

// contentBytes returns how many bytes an activity's content has, and 0 for other messages.
func (m *message) contentBytes() int {
	if m.role != agui.RoleActivity {
		return 0
	}
	if m.obj == nil {
		return len(agui.Lookup(m.raw, "content"))
	}
	switch v := m.obj.get("content").(type) {
	case rawValue:
		return len(v)
	case *tree:
		return v.bytes()
	}
	return 0
}

// hasCalls reports whether the message carries a list of tool calls.
func (m *message) hasCalls() bool {
	if m.obj != nil {
		return m.calls != nil
	}
	return agui.IsArray(agui.Lookup(m.raw, "toolCalls"))
}

// toolCall is one entry of a message's toolCalls, open for change.
type toolCall struct {
	// odd is an entry that is no tool call, as it came; nothing finds it. The schema looks at the calls of
	// assistant messages only.
	odd  rawValue
	id   string
	obj  *object
	fn   *object
	args *textValue
}

func newToolCall(id, name string) *toolCall {
	args := &textValue{}
	fn := &object{members: []member{{"name", stringValue(name)}, {"arguments", args}}}
	return &toolCall{id: id, args: args, fn: fn, obj: &object{members: []member{
		{"id", stringValue(id)}, {"type", stringValue("function")}, {"function", fn},
	}}}
}

// named reports whether the call has that name.
func (c *toolCall) named(name string) bool {
	switch v := c.fn.get("name").(type) {
	case stringValue:
		return string(v) == name
	case rawValue:
		return agui.IsString(json.RawMessage(v)) && stringOf(json.RawMessage(v)) == name
	}
	return false
}

// name is the call's name; other is for a call that has none.
func (c *toolCall) name(other string) string {
	switch v := c.fn.get("name").(type) {
	case stringValue:
		return string(v)
	case rawValue:
		if agui.IsString(json.RawMessage(v)) {
			return stringOf(json.RawMessage(v))
		}
	}
	return other
}

type callList struct{ list []*toolCall }

func (l *callList) appendJSON(dst []byte) []byte {
	dst = append(dst, '[')
	for i, c := range l.list {
		if i > 0 {
			dst = append(dst, ',')
		}
		if c.odd != nil {
			dst = c.odd.appendJSON(dst)
		} else {
			dst = c.obj.appendJSON(dst)
		}
	}
	return append(dst, ']')
}

func parseCalls(raw json.RawMessage) *callList {
	l := &callList{}
	for e := range agui.Elements(raw) {
		c := parseCall(e)
		if c == nil {
			c = &toolCall{odd: rawValue(e)}
		}
		l.list = append(l.list, c)
	}
	return l
}

// parseCall returns nil for what has no id, or no function with arguments.
func parseCall(raw json.RawMessage) *toolCall {
	id, fn := agui.Lookup(raw, "id"), agui.Lookup(raw, "function")
	if !agui.IsString(id) || !agui.IsObject(fn) {
		return nil
	}
	c := &toolCall{id: stringOf(id), obj: parse(raw), fn: parse(fn)}
	arguments, ok := c.fn.get("arguments").(rawValue)
	if !ok || !agui.IsString(json.RawMessage(arguments)) {
		return nil
	}
	c.args = &textValue{body: append(agui.Text(nil), agui.TextOf(json.RawMessage(arguments))...)}
	c.fn.set("arguments", c.args)
	c.obj.set("function", c.fn)
	return c
}
