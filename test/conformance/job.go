package conformance

import "encoding/json"

// Conversation is what a client holds: its messages and its state, as JSON.
type Conversation struct {
	Messages json.RawMessage `json:"messages"`
	State    json.RawMessage `json:"state"`
}

// Job is one stream of events for the client to fold.
type Job struct {
	// Start is what the client holds before; the zero value is no messages and the state {}.
	Start  Start             `json:"start"`
	Events []json.RawMessage `json:"events"`
	// Upgrade translates older wire forms first, as the client does on the wire. Ids of messages
	// that come from THINKING_* are random then: see Mask.
	Upgrade bool `json:"upgrade,omitempty"`
	// Schema makes events that the client's schema rejects an error. Unknown types and unknown
	// members are none, and stay; operations of a patch that RFC 6902 does not have go.
	Schema bool `json:"schema,omitempty"`
	// Strip folds what the client's schema leaves of an event, without what it does not know.
	Strip bool `json:"strip,omitempty"`
	// Skip leaves events out that are an error, and goes on; else the fold stops there.
	Skip bool `json:"skip,omitempty"`
	// Verify asks where the client's verification would have ended the stream.
	Verify bool `json:"verify,omitempty"`
	// Judge asks what the whole client says of the stream, played as one: Result has Ends and Warned then, and no conversation.
	Judge bool `json:"judge,omitempty"`
	// Answer is what a whole HttpAgent gets from its agent, in the place of Events: Result has Rejected and Delivered then, and what
	// the agent holds.
	Answer *Answer `json:"answer,omitempty"`
}

// Answer is an agent's answer over HTTP.
type Answer struct {
	Body []byte `json:"body"`
	// ContentType is text/event-stream, and Status 200, where they are not said.
	ContentType string `json:"contentType,omitempty"`
	Status      int    `json:"status,omitempty"`
	// URL is the agent itself, in the place of an answer. The HttpAgent calls it for the thread, without messages.
	URL      string `json:"url,omitempty"`
	ThreadID string `json:"threadId,omitempty"`
}

// Start is where a fold starts from.
type Start struct {
	Messages json.RawMessage `json:"messages,omitempty"`
	State    json.RawMessage `json:"state,omitempty"`
}

// Result is what the client made of a job.
type Result struct {
	Conversation
	// Error is the event on which the client gave up; Messages and State are those before it.
	Error *EventError `json:"error,omitempty"`
	// Skipped are the events that were left out, in the order in which they were found.
	Skipped []EventError `json:"skipped,omitempty"`
	// Violation is the first event that breaks a rule of the protocol, where Job.Verify asked and one
	// does. It was folded all the same.
	Violation *EventError `json:"violation,omitempty"`
	// Unwritable says that the client holds what no JSON can, such as an object that holds itself: Messages and State are
	// then nil. A State that is nil beside Messages is JavaScript's undefined.
	Unwritable string `json:"unwritable,omitempty"`
	// Ends is where the client gave up, and Warned what it said on the way, where Job.Judge asked.
	Ends   *EventError  `json:"ends,omitempty"`
	Warned []EventError `json:"warned,omitempty"`
	// Rejected is why the run of an HttpAgent failed, "" where it did not; Delivered are the types of the events that it took.
	Rejected  string   `json:"rejected,omitempty"`
	Delivered []string `json:"delivered,omitempty"`
}

// EventError is an event on which the client throws, or warns.
type EventError struct {
	// Index is the event's place in Job.Events.
	Index   int    `json:"index"`
	Message string `json:"message"`
}

// Raw returns events as a job has them.
func Raw[E ~string | ~[]byte](events []E) []json.RawMessage {
	raw := make([]json.RawMessage, len(events))
	for i, e := range events {
		raw[i] = json.RawMessage(e)
	}
	return raw
}
