package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
)

// Op is how an event changed the list of messages.
type Op string

// The ways to change a list of messages.
const (
	Add     Op = "add"
	Replace Op = "replace"
	Remove  Op = "remove"
)

// MessageChange is one change of the list of messages. Changes are made one after another: Index counts in the list as
// the changes before it have left it.
type MessageChange struct {
	Op    Op  `json:"op"`
	Index int `json:"index"`
	// Message is the message from then on, or the one that was removed.
	Message agui.Message `json:"message"`
}

// Change is what one event changed.
type Change struct {
	Messages []MessageChange `json:"messages"`
	// State is a JSON Patch (RFC 6902).
	State json.RawMessage `json:"state"`
}

// Empty reports whether nothing changed.
func (c Change) Empty() bool { return len(c.Messages) == 0 && len(c.State) <= len("[]") }

// Compare returns what turns one history into another. Where the two share messages, as two moments of one fold do, it
// costs what differs, and a look at each message.
func Compare(before, after lineage.History) (Change, error) {
	c := Change{Messages: compareMessages(before.Messages, after.Messages), State: json.RawMessage(`[]`)}
	if same(before.State, after.State) {
		return c, nil
	}
	var err error
	if c.State, err = lineage.Patch(before.State, after.State); err != nil {
		return Change{}, fmt.Errorf("comparing states: %w", err)
	}
	return c, nil
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
			changes = append(changes, MessageChange{Replace, front, after[0]})
		}
		before, after, front = before[1:], after[1:], front+1
	}
	for _, m := range before {
		changes = append(changes, MessageChange{Remove, front, m})
	}
	for i, m := range after {
		changes = append(changes, MessageChange{Add, front + i, m})
	}
	return changes
}

// same reports whether two texts are equal; mostly they are one.
func same(a, b json.RawMessage) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || bytes.Equal(a, b))
}
