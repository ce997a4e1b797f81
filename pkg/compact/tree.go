package compact

import (
	"encoding/json"
	"iter"
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
	// reading is what this tree has read, together with others.
	reading *reading
	// shares says that a node may be shared.
	shares bool
}

func newTree(r *reading, text json.RawMessage) *tree {
	return &tree{root: &node{text: text}, text: text, reading: r}
}

// forget makes the tree anew from its text.
func (t *tree) forget() {
	if t.root.container != nil {
		t.root, t.shares = &node{text: t.JSON()}, false
	}
}

// reading is what the trees of a run have read together.
type reading struct {
	nodes int // made of what patches led into since all trees were made anew
	trees iter.Seq[*tree]
}

// bytes returns how long the document is.
func (t *tree) bytes() int {
	if t.text != nil {
		return len(t.text)
	}
	return t.root.bytes()
}

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
	// spans are of a text that the node's is a part of; nil where nobody has needed them.
	spans *agui.Spans
	// size is how long the text is when it is written from what is below; 0 while nobody has asked.
	size  int
	array bool
	// high is 1 more than the depth, or than what the depth was before something below was changed; 0 while
	// nobody has asked.
	high int32
	// loose says that it may be more than the depth.
	loose bool
	// shared says that it stands in several places since it, or what it is in, was copied: it is never
	// changed any more, and a clone is in its place.
	shared     bool
	*container // what text said, once it was read
}

// bytes returns how long the value is as JSON.
func (n *node) bytes() int {
	if n.text != nil {
		return len(n.text)
	}
	return n.size
}

// measure makes size known, of a container that was read.
func (n *node) measure() {
	if n.size != 0 {
		return
	}
	size := len(`{}`) + max(0, n.count()-1)
	for i := range n.parts {
		p := &n.parts[i]
		if p.text != nil {
			size += len(p.text) - len(`[]`) - (p.count - 1)
		}
		for _, v := range p.nodes {
			size += v.bytes()
		}
	}
	if n.array {
		for _, v := range n.values {
			size += v.bytes()
		}
	} else {
		for name, v := range n.all() {
			size += n.memberBytes(name) + v.bytes()
		}
	}
	n.size = size
}

// memberBytes returns how long a member is without its value: nothing for an element.
func (n *node) memberBytes(name string) int {
	if n.array {
		return 0
	}
	var room [64]byte
	return len(agui.AppendString(room[:0], name)) + len(`:`)
}

func (n *node) isObject() bool {
	if n.container != nil {
		return !n.array
	}
	return agui.IsObject(n.text)
}

func (n *node) isArray() bool {
	if n.container != nil {
		return n.array
	}
	return agui.IsArray(n.text)
}

// open reads a container's members or elements.
func (n *node) open() {
	if n.container != nil {
		return
	}
	n.container = &container{}
	if n.spans == nil {
		n.spans = agui.SpansOf(n.text)
	}
	if n.array = agui.IsArray(n.text); n.array {
		n.readArray(n.text, n.spans)
		return
	}
	n.readObject(n.text, n.spans)
}

func (n *node) appendJSON(dst []byte) []byte {
	if n.text != nil {
		return append(dst, n.text...)
	}
	if n.array {
		dst = append(dst, '[')
		first := len(dst)
		value := func(v *node) {
			if len(dst) > first {
				dst = append(dst, ',')
			}
			dst = v.appendJSON(dst)
		}
		for _, v := range n.values {
			value(v)
		}
		for i := range n.parts {
			p := &n.parts[i]
			if p.text != nil { // all of it at once
				value(&node{text: p.text[1 : len(p.text)-1]})
			}
			for _, v := range p.nodes {
				value(v)
			}
		}
		return append(dst, ']')
	}
	dst = append(dst, '{')
	first := len(dst)
	for name, v := range n.all() {
		if len(dst) > first {
			dst = append(dst, ',')
		}
		dst = append(agui.AppendString(dst, name), ':')
		dst = v.appendJSON(dst)
	}
	return append(dst, '}')
}

// clone returns a node that can be changed in the place of one that is shared and was read.
func (n *node) clone() *node {
	if n.array {
		n.divide(0)
	}
	n.measure() // once, not for each clone
	return &node{text: n.text, size: n.size, array: n.array, high: n.high, loose: n.loose, container: n.container.clone()}
}

// depth is 0 for a value that holds no others, and 1 more than its deepest value for one that does. It
// is exact, or, where that costs a look at the value and not at all that it holds, more. To be exact it looks at
// what holds something that was changed since it last was.
func (n *node) depth(exact bool) int {
	if n.high != 0 && !(exact && n.loose) {
		return int(n.high) - 1
	}
	depth := 0
	n.loose = false
	if n.container == nil {
		depth = textDepth(n.text)
	} else {
		below := func(v *node) {
			if v != nil {
				depth = max(depth, v.depth(exact))
				n.loose = n.loose || v.loose
			}
		}
		if n.table != nil {
			for _, v := range n.all() {
				below(v)
			}
		} else {
			for _, v := range n.values {
				below(v)
			}
		}
		for i := range n.parts {
			p := &n.parts[i]
			depth = max(depth, p.depth())
			for _, v := range p.nodes {
				below(v)
			}
		}
		depth++
	}
	n.high = int32(depth + 1)
	return depth
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

// contents returns what a container holds. What was not read before is not kept.
func (n *node) contents() *node {
	if n.container != nil {
		return n
	}
	c := &node{text: n.text, spans: n.spans}
	c.open()
	return c
}

// equalScalar compares values that hold no others as the client does: numbers as 64-bit floats, strings by
// their characters.
func equalScalar(n, o json.RawMessage) bool {
	if agui.IsString(n) || agui.IsString(o) {
		return agui.IsString(n) && agui.IsString(o) && agui.TextOf(n).Equal(agui.TextOf(o))
	}
	if !isNumber(n) || !isNumber(o) || string(n) == string(o) {
		return string(n) == string(o)
	}
	a, _ := strconv.ParseFloat(string(n), 64) // the error is of range, of what was stored before that was a rule
	b, _ := strconv.ParseFloat(string(o), 64)
	return a == b
}

func isNumber(v json.RawMessage) bool { return v[0] == '-' || (v[0] >= '0' && v[0] <= '9') }
