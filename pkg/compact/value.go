package compact

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
)

// A message that a run builds or changes is held as ordered members: unknown members and the order survive, and appending to
// a string costs what is appended.

// value is a JSON value.
type value interface {
	appendJSON(dst []byte) []byte
}

// rawValue is a value that never changes.
type rawValue json.RawMessage

func (v rawValue) appendJSON(dst []byte) []byte { return append(dst, v...) }

// stringValue is a string that never changes.
type stringValue string

func (v stringValue) appendJSON(dst []byte) []byte { return agui.AppendString(dst, string(v)) }

// textValue is a string that grows by deltas.
type textValue struct{ body agui.Text }

func (v *textValue) appendJSON(dst []byte) []byte { return v.body.AppendJSON(dst) }

type member struct {
	name string
	v    value
}

// object is a JSON object with its members in order.
type object struct {
	members []member
	index   map[string]int // the index of each name, if there are more than indexed
	holes   int            // how many members were removed (their value is nil); 0 without an index
}

func (o *object) appendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	first := len(dst)
	for _, m := range o.members {
		if m.v == nil {
			continue
		}
		if len(dst) > first {
			dst = append(dst, ',')
		}
		dst = append(agui.AppendString(dst, m.name), ':')
		dst = m.v.appendJSON(dst)
	}
	return append(dst, '}')
}

func (o *object) find(name string) int {
	if o.index != nil {
		if i, ok := o.index[name]; ok {
			return i
		}
		return -1
	}
	for i := range o.members {
		if o.members[i].name == name {
			return i
		}
	}
	return -1
}

func (o *object) get(name string) value {
	if i := o.find(name); i >= 0 {
		return o.members[i].v
	}
	return nil
}

// set replaces the member in place, or appends it.
func (o *object) set(name string, v value) {
	if i := o.find(name); i >= 0 {
		o.members[i].v = v
		return
	}
	o.members = append(o.members, member{name, v})
	if o.index != nil {
		o.index[name] = len(o.members) - 1
	} else if len(o.members) > indexed {
		o.reindex()
	}
}

func (o *object) remove(name string) {
	i := o.find(name)
	switch {
	case i < 0:
		return
	case o.index == nil:
		o.members = slices.Delete(o.members, i, i+1)
		return
	}
	o.members[i].v = nil
	delete(o.index, name)
	if o.holes++; o.holes > len(o.members)/2 {
		o.members = slices.DeleteFunc(o.members, func(m member) bool { return m.v == nil })
		o.reindex()
	}
}

func (o *object) reindex() {
	o.index, o.holes = nil, 0
	if len(o.members) > indexed {
		o.index = make(map[string]int, len(o.members))
		for i, m := range o.members {
			o.index[m.name] = i
		}
	}
}

// parse parses the members of a checked JSON object.
func parse(raw json.RawMessage) *object {
	o := &object{}
	for name, v := range agui.Members(raw) {
		o.members = append(o.members, member{name, rawValue(v)})
	}
	o.reindex()
	return o
}

// mergeMetadata merges an event's metadata into an object's: each member replaces the one of its name (AG-UI 1.0,
// mergeMetadata).
func (o *object) mergeMetadata(metadata json.RawMessage) {
	merged, ok := o.get("metadata").(*object)
	if !ok {
		merged = &object{}
		if have, ok := o.get("metadata").(rawValue); ok {
			merged = parse(json.RawMessage(have))
		}
		o.set("metadata", merged)
	}
	metadata = bytes.Clone(metadata)
	for name, v := range agui.Members(metadata) {
		merged.set(name, rawValue(v))
	}
}
