package compact

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/skeinhq/skein/pkg/agui"
)

// tree is a JSON document that patches change in place. A part is read only when a path leads into
// it and written anew only when it was changed, so that a small patch of a large state costs what it
// touches, and what nobody touches keeps the bytes it came with.
type tree struct {
	root *node
	text json.RawMessage // the document as JSON; nil while it must be written anew
	// object says that a patch fails which leaves something else than an object.
	object bool
}

func newTree(text json.RawMessage) *tree { return &tree{root: &node{text: text}, text: text} }

// JSON returns the document. The bytes are not changed later.
func (t *tree) JSON() json.RawMessage {
	if t.text == nil {
		t.text = t.root.appendJSON(nil)
	}
	return t.text
}

func (t *tree) appendJSON(dst []byte) []byte { return append(dst, t.JSON()...) }

// node is one value of a tree.
type node struct {
	text json.RawMessage // as JSON; nil once something below was changed
	read bool            // names and values hold what text said

	names  []string       // of an object's members, in order
	values []*node        // of its members, or the elements of an array
	index  map[string]int // place of each name, for objects that are not small
	array  bool
}

// indexed is the number of members above which an object gets an index.
const indexed = 16

func (n *node) isObject() bool {
	if n.read {
		return !n.array
	}
	return agui.IsObject(n.text)
}

func (n *node) isArray() bool {
	if n.read {
		return n.array
	}
	return agui.IsArray(n.text)
}

// open reads a container's members or elements.
func (n *node) open() {
	if n.read {
		return
	}
	n.read = true
	if n.array = agui.IsArray(n.text); n.array {
		for e := range agui.Elements(n.text) {
			n.values = append(n.values, &node{text: e})
		}
		return
	}
	for name, v := range agui.Members(n.text) {
		n.put(name, &node{text: v})
	}
}

// find returns the place of a member, or -1.
func (n *node) find(name string) int {
	if n.index == nil {
		return slices.Index(n.names, name)
	}
	if i, ok := n.index[name]; ok {
		return i
	}
	return -1
}

// put replaces a member in its place, or appends it.
func (n *node) put(name string, v *node) {
	if i := n.find(name); i >= 0 {
		n.values[i] = v
		return
	}
	n.names, n.values = append(n.names, name), append(n.values, v)
	if n.index != nil {
		n.index[name] = len(n.names) - 1
	} else if len(n.names) > indexed {
		n.reindex()
	}
}

func (n *node) reindex() {
	n.index = make(map[string]int, len(n.names))
	for i, name := range n.names {
		n.index[name] = i
	}
}

// take removes the member or element at i, and insert puts it back.
func (n *node) take(i int) (string, *node) {
	v, name := n.values[i], ""
	n.values = slices.Delete(n.values, i, i+1)
	if !n.array {
		name = n.names[i]
		n.names = slices.Delete(n.names, i, i+1)
		if n.index != nil {
			n.reindex()
		}
	}
	return name, v
}

func (n *node) insert(i int, name string, v *node) {
	n.values = slices.Insert(n.values, i, v)
	if !n.array {
		n.names = slices.Insert(n.names, i, name)
		if n.index != nil {
			n.reindex()
		}
	}
}

func (n *node) appendJSON(dst []byte) []byte {
	if n.text != nil {
		return append(dst, n.text...)
	}
	if n.array {
		dst = append(dst, '[')
		for i, v := range n.values {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = v.appendJSON(dst)
		}
		return append(dst, ']')
	}
	dst = append(dst, '{')
	for i, v := range n.values {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(agui.AppendString(dst, n.names[i]), ':')
		dst = v.appendJSON(dst)
	}
	return append(dst, '}')
}

// copyOf returns the value as a node of its own.
func (n *node) copyOf() *node {
	if n.text != nil {
		return &node{text: n.text}
	}
	return &node{text: n.appendJSON(nil)}
}

// depth is 0 for a value that holds no others, and 1 more than its deepest value for one that does.
func (n *node) depth() int {
	if n.text != nil && !n.read {
		return textDepth(n.text)
	}
	if !n.isObject() && !n.isArray() {
		return 0
	}
	deepest := 0
	for _, v := range n.values {
		deepest = max(deepest, v.depth())
	}
	return deepest + 1
}

// textDepth counts brackets outside of strings.
func textDepth(text json.RawMessage) int {
	depth, deepest := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		}
	}
	return deepest
}

// equal compares values as the client does: numbers as 64-bit floats, strings by their characters,
// objects whatever the order of their members.
func (n *node) equal(o *node) bool {
	switch {
	case n.isObject():
		if !o.isObject() {
			return false
		}
		n.open()
		o.open()
		if len(n.values) != len(o.values) {
			return false
		}
		for i, name := range n.names {
			j := o.find(name)
			if j < 0 || !n.values[i].equal(o.values[j]) {
				return false
			}
		}
		return true
	case n.isArray():
		if !o.isArray() {
			return false
		}
		n.open()
		o.open()
		return slices.EqualFunc(n.values, o.values, (*node).equal)
	case o.isObject() || o.isArray():
		return false
	case agui.IsString(n.text) != agui.IsString(o.text):
		return false
	case agui.IsString(n.text):
		return stringOf(n.text) == stringOf(o.text)
	}
	a, errA := strconv.ParseFloat(string(n.text), 64)
	b, errB := strconv.ParseFloat(string(o.text), 64)
	if isNumber(n.text) && isNumber(o.text) {
		return a == b && (errA == nil) == (errB == nil)
	}
	return string(n.text) == string(o.text) // true, false, null
}

func isNumber(v json.RawMessage) bool { return v[0] == '-' || (v[0] >= '0' && v[0] <= '9') }
