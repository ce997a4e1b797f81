package agui

import (
	"cmp"
	"encoding/json"
)

// RunAgentInput is what an agent is called with.
type RunAgentInput struct {
	ThreadID, RunID string
	// ParentRunID is empty where the input names none.
	ParentRunID string
	// Messages all have an id: one that came without has "message-RUN-N", of the run's id and its place in the list,
	// counted from 1, which no message of another run has.
	Messages []Message
	// Stripped is how many others it has, which have no role that is a string, or an unknown one and no id.
	Stripped int
	// State is nil where the input has none (absent, or null as the client has it).
	State json.RawMessage
	// Resume are the answers to the parent run's interrupts.
	Resume []json.RawMessage
	// Serialised says that the input came on RUN_STARTED. AG-UI lets that one leave out messages that are already in
	// the history; whether it did is told by lineage.Normalised.
	Serialised bool
	// Raw is the input after the upgrade table, ids of messages aside, with null in the place of numbers that no double can
	// hold (Event.Body); it is what was given where there was none of either.
	Raw json.RawMessage
}

// DecodeInput reads a RunAgentInput. It accepts the older forms of the upgrade table and inputs
// without threadId and runId, which then come from the address. Run is the id that made ids of messages contain, the
// input's own runId where it is empty. What the schema rejects gives an error for which IsMalformed is true. The input
// aliases b.
func DecodeInput(b []byte, run string) (*RunAgentInput, error) {
	beyond := false
	if err := checkNoting(b, MaxInputDepth, &beyond); err != nil {
		return nil, err
	}
	if beyond {
		b = withinDoubles(b)
	}
	b = trim(b)
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
	if tooDeep(raw, MaxInputDepth) { // the upgrade table has made it so
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

func trim(b []byte) []byte {
	i, j := skipSpace(b, 0), len(b)
	for j > i && (b[j-1] == ' ' || b[j-1] == '\t' || b[j-1] == '\n' || b[j-1] == '\r') {
		j--
	}
	return b[i:j]
}
