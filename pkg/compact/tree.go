package compact

import (
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
)

// tree is a JSON document that patches change in place. It parses only values on the path of a patch, and encodes only values
// that have changed. So a small patch of a large state costs what it touches, and everything else keeps its bytes.
type tree struct {
	root *node
	// object makes a patch fail if it leaves anything other than an object.
	object  bool
	reading *reading
	noting  bool   // apply keeps the edits of a patch
	edits   []Edit // those of the last patch, or of the snapshot that began the tree, if noting
}

// reading is the state that all trees of a run share.
type reading struct {
	nodes   int // approximate number in all trees
	patches int // that were applied or failed
	room    int // how many bytes all documents may grow before a copy measures them again
	trees   iter.Seq[*tree]
}

func newTree(r *reading, text json.RawMessage) *tree {
	return &tree{root: &node{text: text}, reading: r}
}

// forget drops the nodes of all trees. Later patches parse the texts again.
func (t *tree) forget() {
	t.root = &node{text: t.JSON()}
	t.reading.nodes = 0
	if t.reading.trees != nil {
		for o := range t.reading.trees {
			o.root = &node{text: o.JSON()}
		}
	}
}

// JSON returns the document. Later patches do not change the bytes.
func (t *tree) JSON() json.RawMessage { return t.root.JSON() }

func (t *tree) appendJSON(dst []byte) []byte { return t.root.appendJSON(dst) }

// node is one value of a tree.
type node struct {
	text json.RawMessage // as JSON; nil from a change below this node until JSON encodes it
	// spans indexes the text of which the node's text is a slice; nil until needed.
	spans *agui.Spans
	// deep is the depth of text plus 1; 0 until needed.
	deep int32
	// over is the limit that the number of members or elements exceeded when read refused to parse them, else 0.
	over       int32
	*container // the parsed text; nil until read
}

// container holds the members of an object or the elements of an array.
type container struct {
	array   bool
	list    []*node
	members ordered[*node]
	visited int // the last patch whose path led into it
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

// count returns the number of members or elements.
func (c *container) count() int { return len(c.list) + c.members.count() }

// value returns the member at an index of members.list, or the element at an index.
func (c *container) value(i int) *node {
	if c.array {
		return c.list[i]
	}
	return c.members.list[i].v
}

// put replaces the value that value returns for an index.
func (c *container) put(i int, v *node) {
	if c.array {
		c.list[i] = v
	} else {
		c.members.list[i].v = v
	}
}

// read parses a container's members or elements. It returns false if there are more than most.
func (n *node) read(most int) bool {
	if n.container != nil {
		return n.count() <= most
	}
	if int(n.over) >= most && n.over > 0 {
		return false
	}
	if n.spans == nil {
		n.spans = agui.SpansOf(n.text)
	}
	c := &container{array: agui.IsArray(n.text)}
	var room [16]found
	some := room[:0]
	within := func(name, value json.RawMessage) bool {
		if some = append(some, found{name, value}); len(some) == len(room) {
			c.take(some, n.spans)
			some = some[:0]
		}
		return c.count() <= most
	}
	for e := range n.spans.Elements(n.text) {
		if !within(nil, e) {
			break
		}
	}
	for i := agui.FirstMember(n.text); i >= 0; {
		name, value, next := n.spans.MemberAt(n.text, i)
		if !within(name, value) {
			break
		}
		i = next
	}
	if c.take(some, n.spans); c.count() > most {
		n.over = int32(most)
		return false
	}
	n.container = c
	return true
}

// found is a value that read has found, and its name with the quotes in an object.
type found struct{ name, value json.RawMessage }

// take adds values to a container. Their nodes are one allocation, and so are their names.
func (c *container) take(values []found, spans *agui.Spans) {
	nodes, length := make([]node, len(values)), 0
	for i, f := range values {
		nodes[i] = node{text: f.value, spans: spans}
		length += len(f.name)
	}
	if c.array {
		c.list = slices.Grow(c.list, len(values))
		for i := range nodes {
			c.list = append(c.list, &nodes[i])
		}
		return
	}
	var names strings.Builder
	names.Grow(length)
	c.members.list = slices.Grow(c.members.list, len(values))
	for i, f := range values {
		start := names.Len()
		names.Write(agui.TextOf(f.name).Bytes())
		c.members.set(names.String()[start:], &nodes[i])
	}
}

// JSON returns the value as JSON, and caches it until the next change.
func (n *node) JSON() json.RawMessage {
	if n.text == nil {
		n.text, n.spans = n.appendJSON(nil), nil
	}
	return n.text
}

// toward returns the value to which a path of names and indexes leads as far as it was read, and the rest of the path.
func (n *node) toward(path []string) (value json.RawMessage, rest []string) {
	for len(path) > 0 && n.container != nil {
		name := path[0]
		if n.array {
			i, err := strconv.Atoi(name)
			if err != nil || strconv.Itoa(i) != name || i < 0 || i >= len(n.list) {
				return nil, nil
			}
			n = n.list[i]
		} else if n = n.members.get(name); n == nil {
			return nil, nil
		}
		path = path[1:]
	}
	return n.encoded(), path
}

// encoded returns the value as JSON without caching it. Otherwise each level of a document with a changed node would retain the
// encoding of everything below it.
func (n *node) encoded() json.RawMessage {
	if n.text == nil {
		return n.appendJSON(nil)
	}
	return n.text
}

func (n *node) appendJSON(dst []byte) []byte {
	switch {
	case n.text != nil:
		return append(dst, n.text...)
	case !n.array:
		return n.members.appendJSON(dst)
	}
	dst = append(dst, '[')
	for i, v := range n.list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = v.appendJSON(dst)
	}
	return append(dst, ']')
}

// depth returns 0 for a scalar; for a container it returns 1 plus the depth of the deepest value inside. encoded is n.encoded().
func (n *node) depth(encoded json.RawMessage) int {
	if n.text == nil {
		return textDepth(encoded)
	}
	if n.deep == 0 {
		n.deep = int32(textDepth(encoded) + 1)
	}
	return int(n.deep) - 1
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

// equalScalar compares scalars as the client does: numbers as 64-bit floats, strings by their characters.
func equalScalar(n, o json.RawMessage) bool {
	if agui.IsString(n) || agui.IsString(o) {
		return agui.IsString(n) && agui.IsString(o) && agui.TextOf(n).Equal(agui.TextOf(o))
	}
	if !isNumber(n) || !isNumber(o) || string(n) == string(o) {
		return string(n) == string(o)
	}
	a, _ := strconv.ParseFloat(string(n), 64) // out of range only if stored before such numbers were replaced
	b, _ := strconv.ParseFloat(string(o), 64)
	return a == b
}

func isNumber(v json.RawMessage) bool { return v[0] == '-' || (v[0] >= '0' && v[0] <= '9') }
