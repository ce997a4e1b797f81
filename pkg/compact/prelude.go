package compact

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/skeinhq/skein/pkg/agui"
)

// Prelude returns events that bring a client which holds nothing to where the fold stands: its start, the conversation
// and the state so far, whole, and the opening event of everything that is open. A client that plays them, and then the
// events that come next, ends with what one holds that has seen every event, and its verification finds no fault that
// it would not have found there. This holds for streams whose ids mean one thing each: where two agents go on with a message
// of one id, or a snapshot holds an id twice, the client's answer depends on what it saw before.
//
// A message that older THINKING_* events have open has an id that each client makes up by itself, so the prelude tells
// it by such events again, as the last message. A run that does not begin with RUN_STARTED has a prelude without it.
func (r *Run) Prelude() []json.RawMessage { return r.prelude(false) }

// PreludeAfresh is Prelude for a client that holds another conversation, of which nothing is to stay.
func (r *Run) PreludeAfresh() []json.RawMessage { return r.prelude(true) }

// Snapshots returns events that give a client this conversation and state. Where anew is set, nothing stays of what it held
// before.
func Snapshots(messages []agui.Message, state json.RawMessage, anew bool) []json.RawMessage {
	if anew {
		return append(afresh(messages), stateEvent(state))
	}
	return []json.RawMessage{messagesEvent(messages, ""), stateEvent(state)}
}

func (r *Run) prelude(anew bool) []json.RawMessage {
	var events []json.RawMessage
	if r.p.Started != nil {
		events = append(events, r.p.Started)
	}
	v := r.p.verify
	// Each subagent that was ever started: one that starts later may name it as its parent.
	for _, id := range slices.Sorted(maps.Keys(v.Closed)) {
		events = append(events, eventOf(agui.SubagentStarted, owner{id, true}, "name", id), eventOf(agui.SubagentFinished, owner{id, true}))
	}
	for _, id := range slices.Sorted(maps.Keys(v.Active)) {
		events = append(events, eventOf(agui.SubagentStarted, owner{id, true}, "name", id))
	}
	gone, open := r.opened()
	events = append(events, gone...) // the snapshot takes them away again
	messages := r.Messages()
	var thought []json.RawMessage
	if id := string(r.p.Thinking.Message); id != "" && v.Open[kindReasoning][id] {
		if i := slices.IndexFunc(messages, func(m agui.Message) bool { return m.ID == id }); i >= 0 {
			thought = append(thought, eventOf(agui.ThinkingTextMessageStart, owner{}))
			if text := messages[i].Get("content"); len(text) > len(`""`) {
				thought = append(thought, append(append([]byte(`{"type":"THINKING_TEXT_MESSAGE_CONTENT","delta":`), text...), '}'))
			}
			messages = slices.Delete(slices.Clone(messages), i, i+1)
		}
	}
	events = append(events, Snapshots(messages, r.State(), anew)...)
	for _, key := range slices.Sorted(maps.Keys(v.Steps)) {
		name, o := key, owner{}
		if quoted, err := strconv.QuotedPrefix(key); err == nil {
			if id, err := strconv.Unquote(quoted); err == nil {
				name, o = key[len(quoted):], owner{id, true}
			}
		}
		events = append(events, eventOf(agui.StepStarted, o, "stepName", name))
	}
	if r.p.Thinking.Span != "" && v.Open[kindSpan][string(r.p.Thinking.Span)] {
		events = append(events, eventOf(agui.ThinkingStart, owner{}))
	}
	events = append(append(events, open...), thought...)
	for _, l := range r.p.lanes.all() {
		events = append(events, r.chunk(l))
	}
	return events
}

// opened returns the opening events of what is open but for chunks and THINKING_* events: gone are those whose message
// the conversation has no more.
func (r *Run) opened() (gone, open []json.RawMessage) {
	v := r.p.verify
	// A call that is gone is told in a message of its own. Without one, the client would make a message of the call's id, and
	// one of that id in the snapshot would stand where it stood.
	nobody := "gone"
	for r.conv.find(nobody) != nil {
		nobody += "-"
	}
	for _, kind := range []entityKind{kindSpan, kindReasoning, kindText, kindTool} {
		for _, id := range slices.Sorted(maps.Keys(v.Open[kind])) {
			if r.p.lanes.of(kind, id) != nil || id == string(r.p.Thinking.Message) && kind == kindReasoning || id == string(r.p.Thinking.Span) && kind == kindSpan {
				continue
			}
			o, _ := v.owner(bucketOf(kind), id)
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
				open = append(open, eventOf(agui.ToolCallStart, o, "toolCallId", id, "toolCallName", call.name(id)))
				continue
			}
			t := agui.TextMessageStart
			if kind == kindReasoning {
				t = agui.ReasoningMessageStart
			}
			ev := eventOf(t, o, "messageId", id, "role", map[entityKind]string{kindText: agui.RoleAssistant, kindReasoning: agui.RoleReasoning}[kind])
			if r.conv.find(id) == nil {
				gone = append(gone, ev)
			} else {
				open = append(open, ev)
			}
		}
	}
	return gone, open
}

// chunk opens a lane again.
func (r *Run) chunk(l *lane) json.RawMessage {
	var members []string
	add := func(name string, value *string) {
		if value != nil {
			members = append(members, name, *value)
		}
	}
	switch l.Kind {
	case kindTool:
		members = []string{"toolCallId", l.ID}
		add("toolCallName", l.Name)
		add("parentMessageId", l.Parent)
		return eventOf(agui.ToolCallChunk, l.owner(), members...)
	case kindText:
		members = []string{"messageId", l.ID, "role", l.Role}
		add("name", l.Name)
		return eventOf(agui.TextMessageChunk, l.owner(), members...)
	default:
		return eventOf(agui.ReasoningMessageChunk, l.owner(), "messageId", l.ID)
	}
}

// eventOf writes an event with members that are strings.
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
