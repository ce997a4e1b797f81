package agui

import "encoding/json"

// The roles of messages.
const (
	RoleDeveloper = "developer"
	RoleSystem    = "system"
	RoleAssistant = "assistant"
	RoleUser      = "user"
	RoleTool      = "tool"
	RoleReasoning = "reasoning"
	RoleActivity  = "activity"
)

func knownRole(role string) bool {
	switch role {
	case RoleDeveloper, RoleSystem, RoleAssistant, RoleUser, RoleTool, RoleReasoning, RoleActivity:
		return true
	}
	return false
}

// Message is one message of a conversation: its id and role, and the whole JSON object unchanged.
type Message struct {
	ID   string
	Role string
	// Raw is the message as one JSON object, id and role included.
	Raw json.RawMessage
}

// MarshalJSON returns Raw.
func (m Message) MarshalJSON() ([]byte, error) { return m.Raw, nil }

// UnmarshalJSON reads a message and keeps a copy of b. It requires only an id and a role, since a store must be able to read
// whatever it has written.
func (m *Message) UnmarshalJSON(b []byte) error {
	id, role := Lookup(b, "id"), Lookup(b, "role")
	if kindOf(id) != kindString || kindOf(role) != kindString {
		return malformed("", "a message needs an id and a role")
	}
	*m = Message{ID: unquote(id), Role: unquote(role), Raw: append(json.RawMessage(nil), b...)}
	return nil
}

// messagesOf reads ids and roles of checked messages without copying the messages. Like the client's enforcement, it leaves out
// messages that lack an id or a role, since these cannot be stored or found.
func messagesOf(list json.RawMessage) (messages []Message, stripped int) {
	for raw := range Elements(list) {
		id, role := Lookup(raw, "id"), Lookup(raw, "role")
		if kindOf(id) == kindString && kindOf(role) == kindString {
			messages = append(messages, Message{ID: unquote(id), Role: unquote(role), Raw: raw})
		} else {
			stripped++
		}
	}
	return messages, stripped
}

// Get returns a member of the message, or nil.
func (m Message) Get(name string) json.RawMessage { return Lookup(m.Raw, name) }

// checkMessage checks a message against the schema of its role in AG-UI 1.1. Members outside the schema may be anything. So may
// a message without a known role (see messagesOf).
func checkMessage(t Type, raw json.RawMessage) error {
	if kindOf(raw) != kindObject {
		return malformed(t, "message must be an object, not %s", kindOf(raw))
	}
	role := stringOrNone(Lookup(raw, "role"))
	required := []string{"id"}
	optional := []string{"subagentRunId", "encryptedValue", "encryptedValueType"}
	switch role {
	case RoleDeveloper, RoleSystem, RoleAssistant, RoleUser:
		optional = append(optional, "name")
	case RoleReasoning:
	case RoleTool:
		required, optional = append(required, "toolCallId"), append(optional, "error")
	case RoleActivity:
		required, optional = append(required, "activityType"), optional[:1]
	default:
		return nil
	}
	if err := stringsOf(t, "message", raw, required, optional); err != nil {
		return err
	}
	if m := Lookup(raw, "metadata"); m != nil && kindOf(m) != kindObject {
		return malformed(t, "message.metadata must be an object, not %s", kindOf(m))
	}
	content := Lookup(raw, "content")
	switch role {
	case RoleUser, RoleTool:
		return checkContent(t, "message.content", content)
	case RoleActivity:
		if kindOf(content) != kindObject {
			return malformed(t, "message.content of an activity must be an object, not %s", kindOf(content))
		}
		return nil
	case RoleAssistant:
		if content != nil && kindOf(content) != kindString {
			return malformed(t, "message.content must be a string, not %s", kindOf(content))
		}
		if calls := Lookup(raw, "toolCalls"); calls != nil {
			return checkToolCalls(t, calls)
		}
		return nil
	default: // developer, system, reasoning
		if kindOf(content) != kindString {
			return malformed(t, "message.content must be a string, not %s", kindOf(content))
		}
		return nil
	}
}

func checkToolCalls(t Type, calls json.RawMessage) error {
	if kindOf(calls) != kindArray {
		return malformed(t, "message.toolCalls must be a list, not %s", kindOf(calls))
	}
	for call := range Elements(calls) {
		if err := stringsOf(t, "tool call", call, []string{"id", "type"}, []string{"encryptedValue", "encryptedValueType"}); err != nil {
			return err
		}
		if typ := unquote(Lookup(call, "type")); typ != "function" {
			return malformed(t, "a tool call's type must be function, not %q", typ)
		}
		if err := stringsOf(t, "tool call function", Lookup(call, "function"), []string{"name", "arguments"}, nil); err != nil {
			return err
		}
		if m := Lookup(call, "metadata"); m != nil && kindOf(m) != kindObject {
			return malformed(t, "a tool call's metadata must be an object, not %s", kindOf(m))
		}
	}
	return nil
}
