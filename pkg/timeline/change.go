package timeline

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Op is a kind of change of the list of messages.
type Op string

// These are the kinds of changes.
const (
	Add     Op = "add"
	Replace Op = "replace"
	Remove  Op = "remove"
	// Append appends text to a string of a message, as deltas do, and changes nothing else.
	Append Op = "append"
)

// MessageChange is one change of the list of messages. Changes apply one after another: Index refers to the list after
// all earlier changes.
type MessageChange struct {
	Op        Op          `json:"op"`
	Index     int         `json:"index"`
	MessageID agui.String `json:"messageId"`
	// Message is the new message or, for Remove, the old one. Append has none.
	Message agui.Message `json:"message,omitzero"`
	// Path is the JSON Pointer (RFC 6901) of the string in the message to which Text, a JSON string, is appended.
	Path string          `json:"path,omitempty"`
	Text json.RawMessage `json:"text,omitempty"`
}

// Change is the effect of one event.
type Change struct {
	Messages []MessageChange `json:"messages"`
	// State is a JSON Patch (RFC 6902).
	State json.RawMessage `json:"state"`
}

// Empty reports whether nothing changed.
func (c Change) Empty() bool { return len(c.Messages) == 0 && len(c.State) <= len("[]") }

// Bytes estimates the size of the change as JSON.
func (c Change) Bytes() int {
	n := len(c.State)
	for _, m := range c.Messages {
		n += len(m.Message.Raw) + len(m.Text)
	}
	return n
}

// Compare returns the change from one history to another. It visits each message but compares only those that differ,
// so it is cheap for two histories of one fold, which share most messages.
func Compare(before, after lineage.History) Change {
	return Change{
		Messages: compareMessages(before.Messages, after.Messages),
		State:    statePatch(compact.Edit{Before: orEmpty(before.State), After: orEmpty(after.State)}),
	}
}

func statePatch(edits ...compact.Edit) json.RawMessage {
	for i, e := range edits {
		edits[i].Before, edits[i].After = record.Compacted(e.Before), record.Compacted(e.After)
	}
	return lineage.PatchOf(edits)
}

// orEmpty returns the state, or the initial one if none was set.
func orEmpty(state json.RawMessage) json.RawMessage {
	if state == nil {
		return json.RawMessage(`{}`)
	}
	return state
}

func compareMessages(before, after []agui.Message) []MessageChange {
	front := 0
	for front < len(before) && front < len(after) && same(before[front].Raw, after[front].Raw) {
		front++
	}
	back := 0
	for back < len(before)-front && back < len(after)-front && same(before[len(before)-1-back].Raw, after[len(after)-1-back].Raw) {
		back++
	}
	before, after = before[front:len(before)-back], after[front:len(after)-back]
	changes := []MessageChange{}
	for len(before) > 0 && len(after) > 0 && before[0].ID == after[0].ID {
		if !same(before[0].Raw, after[0].Raw) {
			changes = append(changes, CompareMessage(front, before[0], after[0]))
		}
		before, after, front = before[1:], after[1:], front+1
	}
	for _, m := range before {
		changes = append(changes, MessageChange{Op: Remove, Index: front, MessageID: agui.String(m.ID), Message: m})
	}
	for i, m := range after {
		changes = append(changes, MessageChange{Op: Add, Index: front + i, MessageID: agui.String(m.ID), Message: m})
	}
	return changes
}

// CompareMessage returns the change from a message to another one with its id.
func CompareMessage(index int, before, after agui.Message) MessageChange {
	c := MessageChange{Op: Replace, Index: index, MessageID: agui.String(after.ID), Message: after}
	if path, text := appended(before.Raw, after.Raw); path != "" {
		c.Op, c.Path, c.Text, c.Message = Append, path, text, agui.Message{}
	}
	return c
}

// appended returns the JSON Pointer of a string in a message and the text appended to that string, as a JSON string. It
// returns "" if the messages differ in anything else. It checks only the strings to which deltas append: the content
// and the arguments of tool calls.
func appended(before, after json.RawMessage) (path string, text json.RawMessage) {
	more := len(after) - len(before)
	if more <= 0 || !inserted(before, after) {
		return "", nil
	}
	if text = behind(agui.Lookup(before, "content"), agui.Lookup(after, "content"), more); text != nil {
		return "/content", text
	}
	calls := []json.RawMessage{}
	for call := range agui.Elements(agui.Lookup(before, "toolCalls")) {
		calls = append(calls, call)
	}
	i := 0
	for call := range agui.Elements(agui.Lookup(after, "toolCalls")) {
		if i < len(calls) && !same(calls[i], call) {
			if text = behind(arguments(calls[i]), arguments(call), more); text != nil {
				return "/toolCalls/" + strconv.Itoa(i) + "/function/arguments", text
			}
			break
		}
		i++
	}
	return "", nil
}

// inserted reports whether after equals before with bytes inserted in one place.
func inserted(before, after []byte) bool {
	n := 0
	for n < len(before) && before[n] == after[n] {
		n++
	}
	return bytes.HasSuffix(after, before[n:])
}

// behind returns, as a JSON string, the text by which the JSON string after extends the JSON string before. It
// returns nil unless that text has exactly as many bytes as the argument more.
func behind(before, after json.RawMessage, more int) json.RawMessage {
	if !agui.IsString(before) || !agui.IsString(after) || len(after)-len(before) != more || !bytes.HasPrefix(after, before[:len(before)-1]) {
		return nil
	}
	return append(json.RawMessage{'"'}, after[len(before)-1:]...)
}

func arguments(call json.RawMessage) json.RawMessage {
	return agui.Lookup(agui.Lookup(call, "function"), "arguments")
}

// same reports whether two texts are equal. It is fast if both are the same slice, which is the usual case.
func same(a, b json.RawMessage) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || bytes.Equal(a, b))
}
