package agui

import "encoding/json"

// MaxMessages is how many messages one input (beside the stream or on RUN_STARTED) and one MESSAGES_SNAPSHOT may have. Bytes alone
// do not bound them: a bare string is a message, so 16 MiB could hold five million, and each costs the stages some 10 µs and 1 KB. At
// this many no record holds up the others of its partition for more than about 0.1 s. The history of a thread has no such limit.
const MaxMessages = 10_000

// MaxToolCalls is how many tool calls the messages of one input or MESSAGES_SNAPSHOT may have together. Each becomes a row of the index, of 300 bytes
// beside its text: 16 MiB could hold 240,000. Calls that come as events of their own have no such limit.
const MaxToolCalls = 10_000

// checkCount refuses an event that has more messages than MaxMessages, or more tool calls than MaxToolCalls. It comes before the upgrade table, which writes out what
// is short: an event that is refused costs no more than its bytes.
func (e *Event) checkCount() error {
	switch e.Type {
	case MessagesSnapshot:
		return checkCount(e.Type, "messages", e.JSON(FieldMessages))
	case RunStarted:
		return checkInputCount(e.Type, e.JSON(FieldInput))
	}
	return nil
}

// checkInputCount is checkCount for an input.
func checkInputCount(t Type, input json.RawMessage) error {
	if kindOf(input) != kindObject {
		return nil // refused later
	}
	for name, v := range Members(input) {
		if name != "messages" {
			continue
		}
		if err := checkCount(t, "messages of the input", v); err != nil {
			return err
		}
	}
	return nil
}

func checkCount(t Type, what string, list json.RawMessage) error {
	if len(list) < 2*MaxMessages { // each takes a byte and a comma at least
		return nil
	}
	n := 0
	for range Elements(list) {
		if n++; n > MaxMessages {
			return &MalformedError{Rule: RuleTooMany, Type: t, Detail: what + ": more than 10000; send what the run adds, and name the parent run for the rest"}
		}
	}
	return checkCallCount(t, what, list)
}

// checkCallCount refuses messages that have more tool calls than MaxToolCalls.
func checkCallCount(t Type, what string, list json.RawMessage) error {
	if len(list) < 2*MaxToolCalls { // each takes a byte and a comma at least
		return nil
	}
	n := 0
	for message := range Elements(list) {
		for range Elements(Lookup(message, "toolCalls")) {
			if n++; n > MaxToolCalls {
				return &MalformedError{Rule: RuleTooMany, Type: t, Detail: "tool calls of " + what + ": more than 10000; send what the run adds, and name the parent run for the rest"}
			}
		}
	}
	return nil
}
