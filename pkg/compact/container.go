package compact

import (
	"encoding/json"
	"hash/maphash"
	"iter"
	"maps"
	"math/bits"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
)

// container holds the members of an object or the elements of an array. Finding, adding and removing one costs about the same
// however many there are.
type container struct {
	// values are an object's in order: nil for a removed member, unread for one that only table has. Or they are the elements of an
	// array that has no parts.
	values []*node
	table  *table         // finds the members that a large object came with
	names  []string       // of the members that were added to those
	index  map[string]int // the index in values of each of these names, if there are more than indexed
	holes  int            // how many members were removed
	parts  []part         // the elements of a long array; values is then empty
	length int            // of all parts
}

// unread stands for a value that only the table has.
var unread = &node{}

// table finds the members of a large object in its text, and reads one at a time. It takes a sixth of the memory of nodes.
type table struct {
	text  json.RawMessage
	spans *agui.Spans
	at    []uint32 // the offset of each member in text
	slots []uint32 // a hash table by name: the member's index in at, plus 1
}

// seed differs in each process; it affects only the order of slots.
var seed = maphash.MakeSeed()

// newTable takes the offsets of the members in text, and keeps the slice.
func newTable(text json.RawMessage, spans *agui.Spans, at []uint32) *table {
	t := &table{text: text, spans: spans, slots: make([]uint32, 2<<bits.Len(uint(len(at))))}
	for _, i := range at {
		slot, place := t.seek(nameAt(text, i))
		if place >= 0 { // of a repeated name the last value counts, at the first position
			t.at[place] = i
			continue
		}
		t.at = append(at[:len(t.at)], i)
		t.slots[slot] = uint32(len(t.at))
	}
	return t
}

// seek returns the slot of a name and the member's index, -1 if the name is new.
func (t *table) seek(name string) (slot, place int) {
	mask := uint64(len(t.slots) - 1)
	for h := maphash.String(seed, name); ; h++ {
		slot = int(h & mask)
		place = int(t.slots[slot]) - 1
		if place < 0 || t.name(place) == name {
			return slot, place
		}
	}
}

func nameAt(text json.RawMessage, i uint32) string { return stringOf(agui.NameAt(text, int(i))) }

func (t *table) name(place int) string { return nameAt(t.text, t.at[place]) }

// value returns a new node of the value at an index.
func (t *table) value(place int) *node {
	_, value, _ := t.spans.MemberAt(t.text, int(t.at[place]))
	return &node{text: value, spans: t.spans}
}

// part is a stretch of consecutive elements of an array. They are read when one of them is looked up: a node takes thirty times
// the memory of a small number.
type part struct {
	text  json.RawMessage // the elements as an array without white space; nil once they are nodes
	nodes []*node
	count int
	high  int32 // the depth of text; 0 if unknown
	// shared reports whether another array has the nodes, too.
	shared bool
}

// partOf makes a part of elements, unread unless one is long: copying a long one would cost its size at each level of nesting.
func partOf(elements []json.RawMessage, spans *agui.Spans) part {
	if slices.ContainsFunc(elements, func(e json.RawMessage) bool { return len(e) >= agui.LongSpan }) {
		p := part{count: len(elements)}
		for _, e := range elements {
			p.nodes = append(p.nodes, &node{text: e, spans: spans})
		}
		return p
	}
	size := len(`[]`) + len(elements) - 1
	for _, e := range elements {
		size += len(e)
	}
	text := append(make(json.RawMessage, 0, size), '[')
	for i, e := range elements {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, e...)
	}
	return part{text: append(text, ']'), count: len(elements)}
}

func (p *part) read() []*node {
	if p.text != nil {
		p.nodes = make([]*node, 0, p.count)
		for e := range agui.Elements(p.text) {
			p.nodes = append(p.nodes, &node{text: e})
		}
		p.text = nil
	}
	return p.nodes
}

// own returns the nodes for a change.
func (p *part) own() []*node {
	if p.shared && p.text == nil {
		share(p.nodes)
		p.nodes = slices.Clone(p.nodes)
	}
	p.shared = false
	return p.read()
}

func share(nodes []*node) {
	for _, v := range nodes {
		if v != nil && v != unread {
			v.shared = true
		}
	}
}

// depth returns the depth of the deepest element if they are unread, else 0.
func (p *part) depth() int {
	if p.text == nil {
		return 0
	}
	if p.high == 0 {
		p.high = int32(textDepth(p.text))
	}
	return int(p.high) - 1
}

func (p *part) set(nodes []*node) { p.nodes, p.count = nodes, len(nodes) }

// readArray reads the elements of an array; those of a long one stay unread.
func (c *container) readArray(text json.RawMessage, spans *agui.Spans) {
	var elements []json.RawMessage
	for e := range spans.Elements(text) {
		if len(elements) == 2*partLength {
			c.parts = append(c.parts, partOf(elements[:partLength], spans))
			c.length += partLength
			elements = elements[:copy(elements, elements[partLength:])]
		}
		elements = append(elements, e)
	}
	if c.parts != nil {
		c.parts = append(c.parts, partOf(elements, spans))
		c.length += len(elements)
		return
	}
	for _, e := range elements {
		c.values = append(c.values, &node{text: e, spans: spans})
	}
}

// readObject reads the members of an object; the values of a large one stay unread.
func (c *container) readObject(text json.RawMessage, spans *agui.Spans) {
	var at []uint32
	for i := agui.FirstMember(text); i >= 0; {
		name, value, next := spans.MemberAt(text, i)
		if name == nil {
			break // deeper than the limit: stored before there was one
		}
		at = append(at, uint32(i))
		if len(at) <= tabled {
			c.setMember(stringOf(name), &node{text: value, spans: spans})
		}
		i = next
	}
	if len(at) > tabled {
		*c = container{table: newTable(text, spans, at)}
		c.values = slices.Repeat([]*node{unread}, len(c.table.at))
	}
}

func (c *container) setMember(name string, v *node) {
	if i := c.find(name); i >= 0 {
		c.values[i] = v
	} else {
		c.push(name, v)
	}
}

// came returns how many members the object's table has.
func (c *container) came() int {
	if c.table == nil {
		return 0
	}
	return len(c.table.at)
}

func (c *container) name(i int) string {
	if i < c.came() {
		return c.table.name(i)
	}
	return c.names[i-c.came()]
}

// member returns the value at an index of values, and keeps its node.
func (c *container) member(i int) *node {
	if c.values[i] == unread {
		c.values[i] = c.table.value(i)
	}
	return c.values[i]
}

// unreadAt returns how many nodes a look-up of the element at i would make.
func (c *container) unreadAt(i int) int {
	if c.parts == nil || i < 0 || i >= c.length {
		return 0
	}
	at, _ := c.seek(i)
	if p := &c.parts[at]; p.text != nil {
		return p.count
	}
	return 0
}

// ownAt returns how many nodes a change of the element at i would make.
func (c *container) ownAt(i int) int {
	if c.parts == nil || i < 0 || i >= c.length {
		return 0
	}
	at, _ := c.seek(i)
	if p := &c.parts[at]; p.text != nil || p.shared {
		return p.count
	}
	return 0
}

// kept returns at most how many nodes a clone of c makes.
func (c *container) kept() int {
	if c.table != nil {
		return 1 + len(c.names)
	}
	return 1 + len(c.values)
}

// clone returns a copy for changes; c must not be changed any more. Both share their nodes, or the parts of a long array.
func (c *container) clone() *container {
	d := *c
	share(c.values)
	d.values, d.names, d.index, d.parts = slices.Clone(c.values), slices.Clip(c.names), maps.Clone(c.index), slices.Clone(c.parts)
	for i := range d.parts {
		d.parts[i].shared = true
	}
	return &d
}

const (
	// indexed is the number of members above which an object gets an index.
	indexed = 16
	// tabled is the number of members above which an object is read by a table.
	tabled = 64
	// partLength is the number of elements of a new part; it may grow to twice that. It balances the cost of an insertion into a
	// part with that of finding the part.
	partLength = 512
)

// count returns the number of members or elements.
func (c *container) count() int { return len(c.values) - c.holes + c.length }

// all yields the members or elements; the names of elements are empty. It keeps no new nodes.
func (c *container) all() iter.Seq2[string, *node] {
	return func(yield func(string, *node) bool) {
		for i, v := range c.values {
			name := ""
			if v != nil && (c.table != nil || c.names != nil) {
				name = c.name(i)
			}
			if v == unread {
				v = c.table.value(i)
			}
			if v != nil && !yield(name, v) {
				return
			}
		}
		for i := range c.parts {
			p := &c.parts[i]
			for e := range agui.Elements(p.text) {
				if !yield("", &node{text: e}) {
					return
				}
			}
			for _, v := range p.nodes {
				if !yield("", v) {
					return
				}
			}
		}
	}
}

// find returns the index of a member in values, or -1.
func (c *container) find(name string) int {
	if c.table != nil {
		if _, i := c.table.seek(name); i >= 0 && c.values[i] != nil {
			return i
		}
	}
	if c.index != nil {
		if i, ok := c.index[name]; ok {
			return i
		}
		return -1
	}
	for i, n := range c.names {
		if at := c.came() + i; n == name && c.values[at] != nil {
			return at
		}
	}
	return -1
}

// push appends a member of a new name, and pop undoes that.
func (c *container) push(name string, v *node) {
	c.names, c.values = append(c.names, name), append(c.values, v)
	if c.index != nil {
		c.index[name] = len(c.values) - 1
	} else if len(c.names) > indexed {
		c.reindex()
	}
}

func (c *container) pop() {
	last := len(c.names) - 1
	delete(c.index, c.names[last])
	c.names, c.values = c.names[:last], c.values[:len(c.values)-1]
}

func (c *container) reindex() {
	c.index = make(map[string]int, len(c.names))
	for i, name := range c.names {
		if at := c.came() + i; c.values[at] != nil {
			c.index[name] = at
		}
	}
}

// hide removes the member at an index, and show undoes that.
func (c *container) hide(i int) {
	if i >= c.came() {
		delete(c.index, c.name(i))
	}
	c.values[i] = nil
	c.holes++
}

func (c *container) show(i int, v *node) {
	if c.index != nil && i >= c.came() {
		c.index[c.name(i)] = i
	}
	c.values[i] = v
	c.holes--
}

// sparse reports whether most members were removed.
func (c *container) sparse() bool { return c.holes > indexed && c.holes > len(c.values)/2 }

// dense returns an object's container without its removed members.
func (c *container) dense() *container {
	d := &container{}
	for name, v := range c.all() {
		d.names, d.values = append(d.names, name), append(d.values, v)
	}
	if len(d.names) > indexed {
		d.reindex()
	}
	return d
}

// seek returns the index of the part that holds the element at i, and the element's index in it.
func (c *container) seek(i int) (part, at int) {
	if last := len(c.parts) - 1; i >= c.length-c.parts[last].count {
		return last, i - (c.length - c.parts[last].count)
	}
	for i >= c.parts[part].count {
		i -= c.parts[part].count
		part++
	}
	return part, i
}

// at returns the element at i.
func (c *container) at(i int) *node {
	if c.parts == nil {
		return c.values[i]
	}
	part, at := c.seek(i)
	return c.parts[part].read()[at]
}

// element returns the element or member at i for a change.
func (c *container) element(i int) **node {
	if c.parts == nil {
		return &c.values[i]
	}
	part, at := c.seek(i)
	return &c.parts[part].own()[at]
}

// divide splits a long array into parts before its first change ahead of the end, and reports whether it has parts.
func (c *container) divide(i int) bool {
	if c.parts == nil && len(c.values) > 2*partLength && i < len(c.values)-1 {
		for nodes := range slices.Chunk(c.values, partLength) {
			c.parts = append(c.parts, part{nodes: nodes, count: len(nodes)})
		}
		c.values, c.length = nil, len(c.values)
	}
	return c.parts != nil
}

// insert inserts an element at i, and take removes it.
func (c *container) insert(i int, v *node) {
	if !c.divide(i) {
		c.values = slices.Insert(c.values, i, v)
		return
	}
	in, at := c.seek(i)
	p := &c.parts[in]
	nodes := slices.Insert(p.own(), at, v)
	p.set(nodes)
	c.length++
	if len(nodes) > 2*partLength {
		p.set(nodes[:partLength:partLength])
		rest := slices.Clone(nodes[partLength:])
		c.parts = slices.Insert(c.parts, in+1, part{nodes: rest, count: len(rest)})
	}
}

func (c *container) take(i int) {
	if !c.divide(i) {
		c.values = slices.Delete(c.values, i, i+1)
		return
	}
	in, at := c.seek(i)
	p := &c.parts[in]
	p.set(slices.Delete(p.own(), at, at+1))
	c.length--
	if p.count == 0 && len(c.parts) > 1 {
		c.parts = slices.Delete(c.parts, in, in+1)
	}
}
