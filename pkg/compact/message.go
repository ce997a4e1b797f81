package compact

import (
	"encoding/json"

	"github.com/skeinhq/skein/pkg/agui"
)

// message is one message of the conversation. Its JSON stays unparsed until an event changes it.
type message struct {
	id, role string
	raw      json.RawMessage // as JSON; nil after a change, until export encodes it
	obj      *object         // its members; nil until read parses them
	text     *textValue      // the content if a delta has been appended to it
	calls    *callList       // the tool calls if obj has any
	// places is the number of the message's positions in the list, and at is the first of them: see conversation.numbered.
	places, at int
	// size is what each position beyond the first counts for: the message's bytes when a snapshot put it there, plus the bytes
	// of the events that have named it since.
	size int
	pass int // the last walk that has seen it: see conversation.seen
	// activity caches the activity type of a message that is not open.
	activity *string
}

func newMessage(id, role string, members ...member) *message {
	m := &message{id: id, role: role, obj: &object{list: members}}
	m.text, _ = m.obj.get("content").(*textValue)
	return m
}

func fromMessage(m agui.Message) *message {
	return &message{id: m.ID, role: m.Role, raw: m.Raw}
}

// fromMessages is fromMessage for a list. more is how many messages the caller will append to the result.
func fromMessages(messages []agui.Message, more int) []*message {
	room := make([]message, len(messages)) // one allocation
	list := make([]*message, len(messages), len(messages)+more)
	for i, m := range messages {
		room[i] = message{id: m.ID, role: m.Role, raw: m.Raw}
		list[i] = &room[i]
	}
	return list
}

// export returns the current message.
func (m *message) export() agui.Message {
	if m.raw == nil {
		m.raw = m.obj.appendJSON(make([]byte, 0, m.room()))
	}
	return agui.Message{ID: m.id, Role: m.role, Raw: m.raw}
}

// room returns about how many bytes the message's JSON takes: histories keep it as it is made.
func (m *message) room() int {
	const each = 160 // names, ids
	n := each
	if m.text != nil {
		n += m.text.size
	}
	if m.calls != nil {
		for _, c := range m.calls.list {
			n += each
			if c.args != nil {
				n += c.args.size
			}
		}
	}
	return n
}

// open parses the message so that it can be changed, and drops its JSON.
func (m *message) open() *object {
	obj := m.read()
	m.raw = nil
	return obj
}

// read parses the message's members.
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

// appendText appends a delta to the content. It replaces content that is not a string (absent, or parts), as the
// client's reducer does.
func (m *message) appendText(delta agui.Text) {
	obj := m.open()
	if m.text == nil {
		m.text = &textValue{}
		if c, ok := obj.get("content").(rawValue); ok && agui.IsString(json.RawMessage(c)) {
			m.text.append(agui.TextOf(json.RawMessage(c)))
		}
		obj.set("content", m.text)
	}
	m.text.append(delta)
}

// activityType returns the type of an activity message.
func (m *message) activityType() string {
	if m.obj != nil {
		activity, _ := textOf(m.obj.get("activityType"))
		return activity
	}
	if m.activity == nil {
		activity := stringOf(agui.Lookup(m.raw, "activityType"))
		m.activity = &activity
	}
	return *m.activity
}

func stringOf(v json.RawMessage) string { return string(bytesOf(v)) }

// bytesOf is like stringOf, and aliases v if it has no escapes.
func bytesOf(v json.RawMessage) []byte {
	if !agui.IsString(v) {
		return nil
	}
	return agui.TextOf(v).Bytes()
}

// contentBytes returns the size of an activity's content in bytes, and 0 for other messages.
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
		return len(v.JSON())
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

// toolCall is one entry of a message's toolCalls, parsed.
type toolCall struct {
	// odd is the JSON of an entry that is not a tool call; lookups by id skip it. The schema allows such entries in messages other than
	// assistants'.
	odd  rawValue
	id   string
	obj  *object
	fn   *object
	args *textValue
}

func newToolCall(id, name string) *toolCall {
	args := &textValue{}
	fn := &object{list: []member{{"name", stringValue(name)}, {"arguments", args}}}
	return &toolCall{id: id, args: args, fn: fn, obj: &object{list: []member{
		{"id", stringValue(id)}, {"type", stringValue("function")}, {"function", fn},
	}}}
}

// name returns the call's name, and whether the call has a name that is a string.
func (c *toolCall) name() (string, bool) { return textOf(c.fn.get("name")) }

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

// parseCall returns nil for an entry that has no id, or no function with arguments.
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
	c.args = &textValue{}
	c.args.append(agui.TextOf(json.RawMessage(arguments)))
	c.fn.set("arguments", c.args)
	c.obj.set("function", c.fn)
	return c
}
