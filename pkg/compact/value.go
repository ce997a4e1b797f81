package compact

import (
	"bytes"
	"encoding/json"

	"github.com/skeinhq/skein/pkg/agui"
)

// A message that a run builds or changes is held as ordered members. So unknown members and the order survive, and appending
// to a string costs only what is appended.

// rawValue is a value that never changes.
type rawValue json.RawMessage

func (v rawValue) appendJSON(dst []byte) []byte { return append(dst, v...) }

// stringValue is a string that never changes.
type stringValue string

func (v stringValue) appendJSON(dst []byte) []byte { return agui.AppendString(dst, string(v)) }

// textOf returns the text of v and true if v is a string other than a textValue, which grows by deltas.
func textOf(v value) (string, bool) {
	switch v := v.(type) {
	case stringValue:
		return string(v), true
	case rawValue:
		return stringOf(json.RawMessage(v)), agui.IsString(json.RawMessage(v))
	}
	return "", false
}

// textValue is a string that grows by deltas. It is held in blocks, so that its growth copies nothing.
type textValue struct {
	full []agui.Text
	last agui.Text
	size int // of all blocks
}

// The size of a block is a part of the text so far, within limits.
const (
	blockShare = 8
	leastBlock = 128
	mostBlock  = 32 << 10
)

func (v *textValue) append(delta agui.Text) {
	if len(v.last)+len(delta) > cap(v.last) && !delta.BeginsInPair() { // a pair stays in one block
		if len(v.last) > 0 {
			v.full = append(v.full, v.last)
		}
		v.last = make(agui.Text, 0, max(len(delta), min(max(v.size/blockShare, leastBlock), mostBlock)))
	}
	v.last = append(v.last, delta...)
	v.size += len(delta)
}

func (v *textValue) appendJSON(dst []byte) []byte {
	dst = append(dst, '"')
	for _, block := range v.full {
		dst = block.AppendNormal(dst)
	}
	return append(v.last.AppendNormal(dst), '"')
}

// object holds the members of a message, a tool call or metadata.
type (
	object = ordered[value]
	member = named[value]
)

// parse parses the members of a checked JSON object.
func parse(raw json.RawMessage) *object {
	o := &object{}
	for name, v := range agui.Members(raw) {
		o.list = append(o.list, member{name, rawValue(v)}) // Members repeats no name
	}
	o.reindex()
	return o
}

// mergeMetadata merges an event's metadata into an object's: each member replaces the one of its name (AG-UI 1.0,
// mergeMetadata).
func mergeMetadata(o *object, metadata json.RawMessage) {
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
