package compact

import (
	"encoding/json"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
)

// Step is one run of the stream that Compacted returns.
type Step struct {
	*Run
	// Parent is the run that this one continues, an earlier step, or nil for a root. ParentRunID is the parent's id if
	// RUN_STARTED has to name it.
	Parent      *Run
	ParentRunID string
	// Late is the RUN_ERROR that came after the run's RUN_FINISHED; nil if none came.
	Late json.RawMessage
}

// Compacted returns the runs of a thread, in order, as a short stream of events. Each run has its RUN_STARTED, its kept
// events, the whole conversation and state at its end, and its terminal event (and a late error). After each run, a client that starts
// empty holds what the run left. So does a Skein that knows nothing of the thread, and it finds the same parents. A stream that
// started with RUN_STARTED and passed the client's verification still passes it. Runs before the last one without RUN_STARTED
// are left out, since their events would become part of another run.
//
// The client's own compactEvents changes what the client holds: see docs/fold.md.
func Compacted(steps ...Step) []json.RawMessage {
	var events []json.RawMessage
	var before *Run // what a client holds at this point
	written := map[*Run]bool{}
	for i, step := range steps {
		s := step.Summary()
		if s.Started == nil && i < len(steps)-1 {
			continue
		}
		if s.Started == nil {
			events, before = nil, nil // no run can precede one without RUN_STARTED
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
		if step.Late != nil {
			events = append(events, step.Late)
		}
		before, written[step.Run] = step.Run, true
	}
	return events
}

// started returns a run's RUN_STARTED, with its parent.
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

// messagesAfter returns events that give a client these messages, whichever of the conversations of the runs in before it holds
// (nil is an empty one). One snapshot is usually enough. But a client keeps activities and reasoning that a snapshot does not
// name, and keeps known messages in their positions. If that changes the result, the events first remove everything.
func messagesAfter(messages []agui.Message, before ...*Run) []json.RawMessage {
	plain := messagesEvent(messages, "")
	for _, r := range before {
		if r != nil && !leaves(plain, r.Messages(), messages) {
			return replaceAll(messages)
		}
	}
	return []json.RawMessage{plain}
}

// leaves reports whether an event turns the conversation before into the conversation want.
func leaves(event json.RawMessage, before, want []agui.Message) bool {
	r := New(before, nil)
	ev, err := agui.Decode(event)
	if err != nil || r.Apply(ev) != nil {
		return false
	}
	return slices.EqualFunc(r.Messages(), want, sameMessage)
}

// ownsActivities is the metadata of a snapshot that removes all activities that it does not name.
const ownsActivities = `,"metadata":{"@ag-ui/client":{"authoritativeActivityTypes":null}}`

// replaceAll returns events that replace everything a client holds. The first is a snapshot of one reasoning message that owns all
// activities, so it removes all else. That message then becomes an activity, which the last snapshot does not name.
func replaceAll(messages []agui.Message) []json.RawMessage {
	id := "skein-afresh"
	for slices.ContainsFunc(messages, func(m agui.Message) bool { return m.ID == id }) {
		id += "+"
	}
	quoted := agui.AppendString(nil, id)
	reasoning := append(append([]byte(`{"id":`), quoted...), `,"role":"reasoning","content":""}`...)
	activity := append(append([]byte(`{"type":"ACTIVITY_SNAPSHOT","messageId":`), quoted...),
		`,"activityType":"skein-afresh","content":{}}`...)
	return []json.RawMessage{
		messagesEvent([]agui.Message{{ID: id, Role: agui.RoleReasoning, Raw: reasoning}}, ownsActivities),
		activity,
		messagesEvent(messages, ownsActivities),
	}
}

// These two do not use encoding/json, which would rewrite the values.

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
