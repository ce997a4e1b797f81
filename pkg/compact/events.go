package compact

import (
	"encoding/json"

	"github.com/skeinhq/skein/pkg/agui"
)

// Step is a run of a stream that Compacted writes.
type Step struct {
	*Run
	// Parent is the run that it goes on from, a step before it; nil where it is a root. ParentRunID is its id where
	// RUN_STARTED has to name it.
	Parent      *Run
	ParentRunID string
}

// Compacted returns the runs of a thread, in order, as a short stream of events that gives each of them again: its start,
// what is kept of it, the conversation and the state at its end, whole, and its terminal event. A client that holds
// nothing has after each run what the run left, and so has a Skein that holds nothing of the thread: there the runs have
// the same parents. A stream that starts with RUN_STARTED and passes the client's verification passes it still. Of runs
// before the last one, those without RUN_STARTED are left out: their events would stand in another run.
//
// The client has a compactEvents of its own, which is not faithful to it: docs/fold.md tells where.
func Compacted(steps ...Step) []json.RawMessage {
	var events []json.RawMessage
	var before *Run // what a client holds
	written := map[*Run]bool{}
	for i, step := range steps {
		s := step.Summary()
		if s.Started == nil && i < len(steps)-1 {
			continue
		}
		if s.Started == nil {
			events, before = nil, nil // nothing can stand before a run that does not say where it starts
			clear(written)
		}
		if !written[step.Parent] {
			step.Parent, step.ParentRunID = nil, ""
		}
		if s.Started != nil {
			events = append(events, step.started(s.Started))
		}
		events = append(events, s.Kept...)
		events = append(events, messagesAfter(step.Messages(), before, step.Parent)...)
		events = append(events, stateEvent(step.State()))
		if s.Terminal != nil {
			events = append(events, s.Terminal)
		}
		before, written[step.Run] = step.Run, true
	}
	return events
}

// started is a run's RUN_STARTED, with its parent.
func (s Step) started(event json.RawMessage) json.RawMessage {
	id := agui.AppendString(nil, s.ParentRunID)
	if s.ParentRunID == "" || string(agui.Lookup(event, "parentRunId")) == string(id) {
		return event
	}
	event = agui.Without(event, "parentRunId")
	member := append([]byte(`,"parentRunId":`), id...)
	end := len(event) - 1 // an object with a type: it ends with its brace
	for event[end] != '}' {
		end--
	}
	return append(append(append([]byte(nil), event[:end]...), member...), '}')
}

// messagesAfter are the events that leave a conversation in who holds that of any of these runs (nil is an empty one). One
// snapshot does that, as a rule. But a client keeps activities and reasoning that a snapshot does not speak of, and the
// places of messages that it knows: where that shows, all that it holds is taken away first.
func messagesAfter(messages []agui.Message, before ...*Run) []json.RawMessage {
	plain := messagesEvent(messages, "")
	for _, r := range before {
		if r != nil && !leaves(plain, r.Messages(), messages) {
			return afresh(messages)
		}
	}
	return []json.RawMessage{plain}
}

// leaves reports whether an event leaves a conversation where another one was.
func leaves(event json.RawMessage, before, want []agui.Message) bool {
	r := New(before, nil)
	ev, err := agui.Decode(event)
	if err != nil || r.Apply(ev) != nil {
		return false
	}
	got := r.Messages()
	if len(got) != len(want) {
		return false
	}
	for i, m := range got {
		if m.ID != want[i].ID || string(m.Raw) != string(want[i].Raw) {
			return false
		}
	}
	return true
}

// ownsActivities is the metadata of a snapshot that takes away what it does not speak of.
const ownsActivities = `,"metadata":{"@ag-ui/client":{"authoritativeActivityTypes":null}}`

// afresh takes away all that a client holds: a snapshot that has reasoning and owns all activities leaves nothing but
// itself, and that becomes an activity, which the last one does not speak of.
func afresh(messages []agui.Message) []json.RawMessage {
	id := "skein-afresh"
	for has(messages, id) {
		id += "+"
	}
	quoted := agui.AppendString(nil, id)
	reasoning := append(append([]byte(`{"id":`), quoted...), `,"role":"reasoning","content":""}`...)
	activity := append(append([]byte(`{"type":"ACTIVITY_SNAPSHOT","messageId":`), quoted...), `,"activityType":"skein-afresh","content":{}}`...)
	return []json.RawMessage{
		messagesEvent([]agui.Message{{ID: id, Role: agui.RoleReasoning, Raw: reasoning}}, ownsActivities),
		activity,
		messagesEvent(messages, ownsActivities),
	}
}

func has(messages []agui.Message, id string) bool {
	for _, m := range messages {
		if m.ID == id {
			return true
		}
	}
	return false
}

// The two are written by hand: encoding/json would rewrite what stands in them.

func messagesEvent(messages []agui.Message, metadata string) json.RawMessage {
	b := []byte(`{"type":"MESSAGES_SNAPSHOT","messages":[`)
	for i, m := range messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, m.Raw...)
	}
	return append(append(append(b, ']'), metadata...), '}')
}

func stateEvent(state json.RawMessage) json.RawMessage {
	return append(append([]byte(`{"type":"STATE_SNAPSHOT","snapshot":`), state...), '}')
}
