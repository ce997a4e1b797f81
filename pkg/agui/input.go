package agui

import (
	"bytes"
	"cmp"
	"encoding/json"
)

// RunAgentInput is the input that an agent is called with.
type RunAgentInput struct {
	ThreadID, RunID string
	// ParentRunID is empty if the input names none.
	ParentRunID string
	// Messages all have an id. A message without one gets "message-RUN~N", from the run's id and the message's position, counted
	// from 1. No message of another run has this id.
	Messages []Message
	// Stripped is how many messages were left out of Messages: those without a role, or with an unknown one and no id.
	Stripped int
	// State is nil if the state is absent or null.
	State json.RawMessage
	// Resume has the answers to the parent run's interrupts.
	Resume []json.RawMessage
	// Serialised reports whether the input was on RUN_STARTED. AG-UI allows such an input to leave out messages of the history;
	// lineage.Normalised decides whether this one did.
	Serialised bool
	// Raw is the input after the upgrade table, without made ids, and with null in place of numbers that no double can hold (see
	// Event.Body). If none of this changed the input, Raw is its original bytes.
	Raw json.RawMessage
}

// DecodeInput reads a RunAgentInput, which aliases b. It accepts the older forms of the upgrade table, and inputs without
// threadId and runId, which the caller takes from the request's path. Made message ids contain run, or the input's runId if run
// is empty. If the schema rejects the input, IsMalformed is true for the error.
func DecodeInput(b []byte, run string) (*RunAgentInput, error) {
	beyond := false
	if err := checkNoting(b, MaxInputDepth, &beyond); err != nil {
		return nil, err
	}
	if beyond {
		b = withinDoubles(b)
	}
	b = bytes.Trim(b, " \t\r\n")
	if kindOf(b) != kindObject {
		return nil, errNotObject
	}
	if err := checkInputCount("", b); err != nil {
		return nil, err
	}
	up, _ := upgradeInput(b)
	return decodeInput(up, run, false)
}

// decodeInput reads a checked and upgraded input.
func decodeInput(raw json.RawMessage, run string, serialised bool) (*RunAgentInput, error) {
	if kindOf(raw) != kindObject {
		return nil, malformed("", "the input must be an object, not %s", kindOf(raw))
	}
	if tooDeep(raw, MaxInputDepth) { // possible after the upgrade table
		return nil, deeper("", "", MaxInputDepth)
	}
	in := &RunAgentInput{Raw: raw, Serialised: serialised}
	var messages, resume json.RawMessage
	for name, v := range Members(raw) {
		switch name {
		case "threadId", "runId", "parentRunId", "protocolVersion":
			if kindOf(v) != kindString {
				return nil, malformed("", "%s must be a string, not %s", name, kindOf(v))
			}
			switch name {
			case "threadId":
				in.ThreadID = unquote(v)
			case "runId":
				in.RunID = unquote(v)
			case "parentRunId":
				in.ParentRunID = unquote(v)
			}
		case "messages":
			messages = v
		case "state":
			if tooDeep(v, MaxDepth) {
				return nil, deeper("", "state", MaxDepth)
			}
			if in.State = v; kindOf(v) == kindNull {
				in.State = nil
			}
		case "resume":
			resume = v
		case "tools", "context":
			if kindOf(v) != kindArray {
				return nil, malformed("", "%s must be a list, not %s", name, kindOf(v))
			}
		}
	}
	if kindOf(messages) != kindArray && !(serialised && messages == nil) {
		return nil, malformed("", "messages must be a list, not %s", kindOf(messages))
	}
	messages, _ = nameMessages(messages, cmp.Or(run, in.RunID))
	for m := range Elements(messages) {
		if err := checkMessage("", m); err != nil {
			return nil, err
		}
	}
	in.Messages, in.Stripped = messagesOf(messages)
	if resume != nil {
		if kindOf(resume) != kindArray {
			return nil, malformed("", "resume must be a list, not %s", kindOf(resume))
		}
		for r := range Elements(resume) {
			if err := stringsOf("", "resume entry", r, []string{"interruptId", "status"}, nil); err != nil {
				return nil, err
			}
			in.Resume = append(in.Resume, r)
		}
	}
	return in, nil
}
