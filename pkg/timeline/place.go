package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Place is what a caller watches for changes: a value in the state, or a message.
type Place struct {
	path    []string
	message string // "" for a value in the state
}

// StatePlace returns the place in the state that a JSON Pointer (RFC 6901) names; "" is the whole state.
func StatePlace(pointer string) (Place, error) {
	if pointer == "" {
		return Place{}, nil
	}
	path, ok := agui.PointerNames(pointer)
	if !ok {
		return Place{}, fmt.Errorf("reading JSON Pointer %q: want names with a / before each, such as /cart/total; / in a name is ~1, ~ is ~0", pointer)
	}
	return Place{path: path}, nil
}

// MessagePlace returns the place of the message with this id. The id must not be empty.
func MessagePlace(id string) Place { return Place{message: id} }

// IsMessage reports whether the place is a message.
func (p Place) IsMessage() bool { return p.message != "" }

// Of returns the value at the place in a history; nil if there is none.
func (p Place) Of(h lineage.History) json.RawMessage {
	if p.IsMessage() {
		return p.among(h.Messages)
	}
	return agui.At(orEmpty(h.State), p.path)
}

// among returns the first message with the place's id, which is also the one that the fold uses.
func (p Place) among(messages []agui.Message) json.RawMessage {
	for _, m := range messages {
		if m.ID == p.message {
			return m.Raw
		}
	}
	return nil
}

// mayChange reports whether an event may change the value at the place. It considers only the event, not the history.
func (p Place) mayChange(ev *agui.Event) bool {
	switch ev.Type {
	case agui.StateSnapshot:
		return !p.IsMessage()
	case agui.StateDelta:
		return !p.IsMessage() && p.touched(ev.JSON(agui.FieldDelta))
	case agui.StepStarted, agui.StepFinished, agui.Custom, agui.Raw, agui.Meta:
		return false
	}
	return p.IsMessage()
}

// touched reports whether a JSON Patch may change the value at the place: by an operation at, above or below the
// place, or on a list around it, whose elements may move.
func (p Place) touched(patch json.RawMessage) bool {
	for op := range agui.Elements(patch) {
		for _, name := range []string{"path", "from"} {
			at := agui.Lookup(op, name)
			if at == nil && name == "from" {
				continue
			}
			if !agui.IsString(at) {
				return true
			}
			path, ok := agui.PointerNames(agui.TextOf(at).String())
			if !ok || begins(p.path, path[:len(path)-1]) || begins(path, p.path) {
				return true
			}
		}
	}
	return false
}

// begins reports whether a path begins with another one.
func begins(path, with []string) bool {
	if len(path) < len(with) {
		return false
	}
	for i := range with {
		if path[i] != with[i] {
			return false
		}
	}
	return true
}

// Watch moves through steps and reports which steps change the value at a place.
type Watch struct {
	c     *Cursor
	place Place
	value json.RawMessage // compacted
}

// Watch returns a watch on a place. It starts at the cursor and moves the cursor.
func (c *Cursor) Watch(p Place) *Watch {
	return &Watch{c, p, record.Compacted(p.Of(c.History()))}
}

// Value returns the value at the place after the cursor's step; nil if there is none.
func (w *Watch) Value() json.RawMessage { return w.value }

// Next moves to the next step, which must exist, and reports whether that step changed the value at the place. If so,
// before is the old value, and Value returns the new one.
func (w *Watch) Next() (s Step, before json.RawMessage, changed bool, err error) {
	before = w.value
	if s, _, err = w.c.advance(false); err != nil {
		return s, before, false, err
	}
	var after json.RawMessage
	switch {
	case s.N == 0:
		after = w.place.Of(w.c.at)
	case !folds(s.Outcome):
		return s, before, false, nil
	default:
		ev, err := agui.Decode(s.Value)
		if err != nil {
			return s, before, false, fmt.Errorf("folding step %d again: %w", s.N, err)
		}
		if !w.place.mayChange(ev) {
			return s, before, false, nil
		}
		if w.place.IsMessage() {
			after = w.place.among(w.c.fold.Messages())
		} else {
			after = agui.At(w.c.fold.StateAt(w.place.path))
		}
	}
	if same(before, after) && (before == nil) == (after == nil) {
		return s, before, false, nil
	}
	w.value = record.Compacted(after)
	changed, err = Differ(before, w.value)
	return s, before, changed, err
}

// Differ reports whether two JSON values differ in meaning. Either may be nil.
func Differ(a, b json.RawMessage) (bool, error) {
	if a == nil || b == nil || bytes.Equal(a, b) {
		return (a == nil) != (b == nil), nil
	}
	patch, err := lineage.Patch(a, b)
	if err != nil {
		return false, fmt.Errorf("comparing the values at a place: %w", err)
	}
	return string(patch) != "[]", nil
}

// Begins returns the offset of the first folded event, which decides the run's parent; -1 if no event was folded.
func (t *Timeline) Begins() int64 {
	for _, s := range t.steps {
		if folds(s.Outcome) {
			return s.Offset
		}
	}
	return -1
}
