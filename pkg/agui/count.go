package agui

import "encoding/json"

// MaxMessages is how many messages one MESSAGES_SNAPSHOT, or one input (separate or on RUN_STARTED), may have. The limit in bytes
// does not bound them: 16 MiB could hold five million bare strings, each a message that costs the stages some 10 µs and 1 KB. With
// this limit, a record delays the others of its partition by about 0.1 s at most. A thread's history has no such limit.
const MaxMessages = 10_000

// MaxToolCalls is how many tool calls the messages of one input or MESSAGES_SNAPSHOT may have together. Each becomes a row of
// the index, of 300 bytes plus its text; 16 MiB could hold 240,000. Calls that are events of their own have no such limit.
const MaxToolCalls = 10_000

// tooMany ends the errors for both limits.
const tooMany = ": more than 10000; send what the run adds, and name the parent run for the rest"

// checkCount checks an event against MaxMessages and MaxToolCalls. It runs before the upgrade table, which lengthens short forms, so
// that a refused event costs no more than its own bytes.
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
	return checkCount(t, "messages of the input", Lookup(input, "messages"))
}

func checkCount(t Type, what string, list json.RawMessage) error {
	if len(list) < 2*min(MaxMessages, MaxToolCalls) { // each takes at least a byte and a comma
		return nil
	}
	messages, calls := 0, 0
	for range Elements(list) {
		if messages++; messages > MaxMessages {
			return &MalformedError{Rule: RuleTooMany, Type: t, Detail: what + tooMany}
		}
	}
	for message := range Elements(list) {
		for range Elements(Lookup(message, "toolCalls")) {
			if calls++; calls > MaxToolCalls {
				return &MalformedError{Rule: RuleTooMany, Type: t, Detail: "tool calls of " + what + tooMany}
			}
		}
	}
	return nil
}
