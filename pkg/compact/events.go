package compact

import (
	"encoding/json"

	"github.com/skeinhq/skein/pkg/agui"
)

// Compacted returns the runs of a chain, in order, as the shortest stream of events that leaves in a
// client that holds nothing what the last run left: the start of each run, what is kept of it and its
// terminal event, and before the last one the conversation and the state, whole. A stream that starts
// with RUN_STARTED and passes the client's verification passes it still. Of runs before the last one,
// those without RUN_STARTED are left out: their events would stand in another run.
//
// The client has a compactEvents of its own, which is not faithful to it: docs/fold.md tells where.
func Compacted(chain ...*Run) []json.RawMessage {
	var events []json.RawMessage
	for i, r := range chain {
		last := i == len(chain)-1
		s := r.Summary()
		if s.Started == nil && !last {
			continue
		}
		if s.Started != nil {
			events = append(events, s.Started)
		} else {
			events = nil // nothing can stand before a run that does not say where it starts
		}
		events = append(events, s.Kept...)
		if last {
			events = append(events, messagesEvent(r.Messages()), stateEvent(r.State()))
		}
		if s.Terminal != nil {
			events = append(events, s.Terminal)
		}
	}
	return events
}

// The two are written by hand: encoding/json would rewrite what stands in them.

func messagesEvent(messages []agui.Message) json.RawMessage {
	b := []byte(`{"type":"MESSAGES_SNAPSHOT","messages":[`)
	for i, m := range messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, m.Raw...)
	}
	return append(b, `]}`...)
}

func stateEvent(state json.RawMessage) json.RawMessage {
	return append(append([]byte(`{"type":"STATE_SNAPSHOT","snapshot":`), state...), '}')
}
