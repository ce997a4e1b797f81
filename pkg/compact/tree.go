package compact

import (
	"encoding/json"
	"iter"
	"strconv"

	"github.com/skeinhq/skein/pkg/agui"
)

// tree is a JSON document that patches change in place. It parses only values that a path leads into, and encodes only those that
// have changed: a small patch of a large state costs what it touches, and everything else keeps its bytes.
type tree struct {
	root *node
	text json.RawMessage // the document as JSON; nil after a change, until JSON encodes it
	// object makes a patch fail that leaves anything other than an object.
	object bool
	// reading counts the nodes of this and the run's other trees.
	reading *reading
	// shares reports whether a node may be shared.
	shares bool
}

func newTree(r *reading, text json.RawMessage) *tree {
	return &tree{root: &node{text: text}, text: text, reading: r}
}

// forget drops the tree's nodes.
func (t *tree) forget() {
	if t.root.container != nil {
		t.root, t.shares = &node{text: t.JSON()}, false
	}
}

// reading counts the nodes of all trees of a run.
type reading struct {
	nodes int // made since the last restart
	trees iter.Seq[*tree]
}

// bytes returns the size of the document as JSON.
func (t *tree) bytes() int {
	if t.text != nil {
		return len(t.text)
	}
	return t.root.bytes()
}

// JSON returns the document. Later patches do not change the bytes.
func (t *tree) JSON() json.RawMessage {
	if t.text == nil {
		t.text = t.root.appendJSON(nil)
	}
	return t.text
}

func (t *tree) appendJSON(dst []byte) []byte { return append(dst, t.JSON()...) }

// node is one value of a tree.
type node struct {
	text json.RawMessage // as JSON; nil after a change below
	// spans index the text that the node's text is a slice of; nil until needed.
	spans *agui.Spans
	// size is the size as JSON if text is nil; 0 if unknown.
	size  int
	array bool
	// high is the depth plus 1, or at least that if inexact; 0 if unknown.
	high    int32
	inexact bool
	// shared marks a node with several parents, since it or an ancestor was copied: it must not change any more, only its clones may.
	shared     bool
	*container // the parsed text; nil until open
}

// bytes returns the size of the value as JSON.
func (n *node) bytes() int {
	if n.text != nil {
		return len(n.text)
	}
	return n.size
}

// measure computes size for a node that was read.
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

// memberBytes returns the size of a member without its value, 0 for an element.
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
			if p.text != nil {
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

// clone returns a copy, for changes, of a shared node that was read.
func (n *node) clone() *node {
	if n.array {
		n.divide(0)
	}
	n.measure() // once, not for each clone
	return &node{text: n.text, size: n.size, array: n.array, high: n.high, inexact: n.inexact, container: n.container.clone()}
}

// depth returns 0 for a scalar, and for a container 1 more than the depth of its deepest value. Unless exact is set, the result may be
// too large after changes; the exact depth costs a walk over all containers that have changed.
func (n *node) depth(exact bool) int {
	if n.high != 0 && !(exact && n.inexact) {
		return int(n.high) - 1
	}
	depth := 0
	n.inexact = false
	if n.container == nil {
		depth = textDepth(n.text)
	} else {
		below := func(v *node) {
			if v != nil {
				depth = max(depth, v.depth(exact))
				n.inexact = n.inexact || v.inexact
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

// contents returns n, or a parsed copy of it if it was not read.
func (n *node) contents() *node {
	if n.container != nil {
		return n
	}
	c := &node{text: n.text, spans: n.spans}
	c.open()
	return c
}

// equalScalar compares scalars as the client does: numbers as 64-bit floats, strings by their characters.
func equalScalar(n, o json.RawMessage) bool {
	if agui.IsString(n) || agui.IsString(o) {
		return agui.IsString(n) && agui.IsString(o) && agui.TextOf(n).Equal(agui.TextOf(o))
	}
	if !isNumber(n) || !isNumber(o) || string(n) == string(o) {
		return string(n) == string(o)
	}
	a, _ := strconv.ParseFloat(string(n), 64) // out of range only if stored before there was a limit
	b, _ := strconv.ParseFloat(string(o), 64)
	return a == b
}

func isNumber(v json.RawMessage) bool { return v[0] == '-' || (v[0] >= '0' && v[0] <= '9') }
