package compact

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/skeinhq/skein/pkg/agui"
)

// Prelude returns events that bring an empty client to the fold's current point: RUN_STARTED if the run has one, the whole
// conversation and state, and the opening event of everything that is open. After these and the following events, the client
// holds the same as one that has played every event, and its verification reports nothing else. This requires that each id
// has one meaning: if two agents continue a message with one id, or a snapshot repeats an id, the client's result depends on
// earlier events.
//
// Each client makes its own id for an open message of THINKING_* events. So the prelude ends with such events for that
// message.
func (r *Run) Prelude() []json.RawMessage { return r.prelude(false) }

// PreludeAfresh is Prelude for a client that holds another conversation. Its events first remove that conversation.
func (r *Run) PreludeAfresh() []json.RawMessage { return r.prelude(true) }

// Snapshots returns events that give a client this conversation and state. If replace is set, they first remove everything that it holds.
func Snapshots(messages []agui.Message, state json.RawMessage, replace bool) []json.RawMessage {
	if replace {
		return append(replaceAll(messages), stateEvent(state))
	}
	return []json.RawMessage{messagesEvent(messages, ""), stateEvent(state)}
}

func (r *Run) prelude(replace bool) []json.RawMessage {
	var events []json.RawMessage
	if r.p.Started != nil {
		events = append(events, r.p.Started)
	}
	v := r.p.verify
	// Include ended subagents, since a subagent that starts later may name one as its parent.
	for _, id := range v.Closed.sorted() {
		events = append(events, eventOf(agui.SubagentStarted, owner{id, true}, "name", id), eventOf(agui.SubagentFinished, owner{id, true}))
	}
	for _, id := range v.Active.sorted() {
		events = append(events, eventOf(agui.SubagentStarted, owner{id, true}, "name", id))
	}
	gone, open := r.opened()
	events = append(events, gone...) // the snapshot removes the messages of these
	messages := r.Messages()
	var thought []json.RawMessage
	if id := string(r.p.Thinking.Message); id != "" && v.Open.Reasoning.At(id) {
		if i := slices.IndexFunc(messages, func(m agui.Message) bool { return m.ID == id }); i >= 0 {
			thought = append(thought, eventOf(agui.ThinkingTextMessageStart, owner{}))
			if text := messages[i].Get("content"); len(text) > len(`""`) {
				thought = append(thought, append(append([]byte(`{"type":"THINKING_TEXT_MESSAGE_CONTENT","delta":`), text...), '}'))
			}
			messages = slices.Delete(slices.Clone(messages), i, i+1)
		}
	}
	messages, activities := r.beforeActivities(messages)
	events = append(events, Snapshots(messages, r.State(), replace)...)
	for _, key := range v.Steps.sorted() {
		name, o := key, owner{}
		if quoted, err := strconv.QuotedPrefix(key); err == nil {
			if id, err := strconv.Unquote(quoted); err == nil {
				name, o = key[len(quoted):], owner{id, true}
			}
		}
		events = append(events, eventOf(agui.StepStarted, o, "stepName", name))
	}
	if r.p.Thinking.Span != "" && v.Open.Span.At(string(r.p.Thinking.Span)) {
		events = append(events, eventOf(agui.ThinkingStart, owner{}))
	}
	events = append(append(events, open...), thought...)
	for _, l := range r.p.lanes.all() {
		events = append(events, r.chunk(l))
	}
	return append(events, activities...)
}

// beforeActivities returns messages in which each activity that has replaced the message of a call is that message again, if chunks still
// continue the call, and the events that replace it once more. Without the message, such a chunk would make one.
func (r *Run) beforeActivities(messages []agui.Message) (before []agui.Message, activities []json.RawMessage) {
	for _, l := range r.p.lanes.all() {
		if _, call := r.conv.owner(string(l.ID)); l.Kind != kindTool || call != nil {
			continue
		}
		i := slices.IndexFunc(messages, func(m agui.Message) bool {
			return m.Role == agui.RoleActivity && (m.ID == string(l.ID) || l.Parent != nil && m.ID == string(*l.Parent))
		})
		if i < 0 {
			continue
		}
		event := []byte(`{"type":"ACTIVITY_SNAPSHOT"`)
		for name, v := range agui.Members(messages[i].Raw) {
			if name == "id" {
				name = "messageId"
			}
			if name != "role" {
				event = append(append(agui.AppendString(append(event, ','), name), ':'), v...)
			}
		}
		activities = append(activities, append(event, '}'))
		id := messages[i].ID
		m := newMessage(id, agui.RoleAssistant, member{"id", stringValue(id)}, member{"role", stringValue(agui.RoleAssistant)},
			member{"toolCalls", &callList{list: []*toolCall{newToolCall(string(l.ID), string(*l.Name))}}})
		l.owner().tag(m.obj)
		messages = slices.Clone(messages)
		messages[i] = m.export()
	}
	return messages, activities
}

// opened returns the opening events of everything open, except what chunks or THINKING_* events opened. gone has the events whose
// message is no longer in the conversation.
func (r *Run) opened() (gone, open []json.RawMessage) {
	v := r.p.verify
	// A call that is gone gets a parent message of its own. Otherwise the client would make a message with the call's id, and
	// a message with that id in the snapshot would take its position.
	nobody := "gone"
	for r.conv.find(nobody) != nil {
		nobody += "-"
	}
	for _, kind := range []entityKind{kindSpan, kindReasoning, kindText, kindTool} {
		for _, id := range v.Open.of(kind).sorted() {
			if r.p.lanes.byID.At(entity{kind, id}) != nil || id == string(r.p.Thinking.Message) && kind == kindReasoning ||
				id == string(r.p.Thinking.Span) && kind == kindSpan {
				continue
			}
			o, _ := opener(v.Owners.of(kind), id)
			switch kind {
			case kindSpan:
				open = append(open, eventOf(agui.ReasoningStart, o, "messageId", id))
				continue
			case kindTool:
				_, call := r.conv.owner(id)
				if call == nil {
					gone = append(gone, eventOf(agui.ToolCallStart, o, "toolCallId", id, "toolCallName", id, "parentMessageId", nobody))
					continue
				}
				name, ok := call.name()
				if !ok {
					name = id
				}
				open = append(open, eventOf(agui.ToolCallStart, o, "toolCallId", id, "toolCallName", name))
				continue
			}
			t, role := agui.TextMessageStart, agui.RoleAssistant
			if kind == kindReasoning {
				t, role = agui.ReasoningMessageStart, agui.RoleReasoning
			}
			ev := eventOf(t, o, "messageId", id, "role", role)
			if r.conv.find(id) == nil {
				gone = append(gone, ev)
			} else {
				open = append(open, ev)
			}
		}
	}
	return gone, open
}

// chunk returns a chunk that opens a lane.
func (r *Run) chunk(l *lane) json.RawMessage {
	var members []string
	add := func(name string, value *agui.String) {
		if value != nil {
			members = append(members, name, string(*value))
		}
	}
	switch l.Kind {
	case kindTool:
		members = []string{"toolCallId", string(l.ID)}
		add("toolCallName", l.Name)
		add("parentMessageId", l.Parent)
		return eventOf(agui.ToolCallChunk, l.owner(), members...)
	case kindText:
		members = []string{"messageId", string(l.ID), "role", l.Role}
		add("name", l.Name)
		return eventOf(agui.TextMessageChunk, l.owner(), members...)
	default:
		return eventOf(agui.ReasoningMessageChunk, l.owner(), "messageId", string(l.ID))
	}
}

// eventOf encodes an event from pairs of member names and string values.
func eventOf(t agui.Type, o owner, members ...string) json.RawMessage {
	b := append([]byte(`{"type":"`), t...)
	b = append(b, '"')
	for i := 0; i < len(members); i += 2 {
		b = append(append(append(b, `,"`...), members[i]...), `":`...)
		b = agui.AppendString(b, members[i+1])
	}
	if o.set {
		b = agui.AppendString(append(b, `,"subagentRunId":`...), o.id)
	}
	return append(b, '}')
}
