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

// container holds the members of an object or the elements of an array. To look at one, to add and to
// remove one costs about the same however many there are.
type container struct {
	// values are an object's, in order, nil where a member was removed and unread where table has it; or an
	// array's that came short, while nothing was put in between or removed there, or there are few.
	values []*node
	table  *table         // of the members that a large object came with
	names  []string       // of the members behind those
	index  map[string]int // place of each of these names, where there are more than a few
	holes  int            // members that were removed
	parts  []part         // an array's elements otherwise
	length int            // of parts
}

// unread stands in the place of a member's value that was not asked for.
var unread = &node{}

// table finds the members of a large object in its text. It takes a sixth of the room that nodes do, and however
// many members there are, one is read when it is asked for.
type table struct {
	text  json.RawMessage
	spans *agui.Spans
	at    []uint32 // where each member begins
	slots []uint32 // by the hash of the name: 1 more than the place
}

// seed is of this process: what depends on it is not seen outside of a table.
var seed = maphash.MakeSeed()

// newTable takes places where members begin, which it keeps.
func newTable(text json.RawMessage, spans *agui.Spans, at []uint32) *table {
	t := &table{text: text, spans: spans, slots: make([]uint32, 2<<bits.Len(uint(len(at))))}
	for _, i := range at {
		slot, place := t.seek(nameAt(text, i))
		if place >= 0 { // of a name that stands twice the last one counts, in the place of the first
			t.at[place] = i
			continue
		}
		t.at = append(at[:len(t.at)], i)
		t.slots[slot] = uint32(len(t.at))
	}
	return t
}

// seek returns the slot for a name, and its place, -1 where it has none.
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

// value returns a node of the value at a place, which is not kept.
func (t *table) value(place int) *node {
	_, value, _ := t.spans.MemberAt(t.text, int(t.at[place]))
	return &node{text: value, spans: t.spans}
}

// part are elements of an array that follow each other. They are read when one of them is asked for: a node
// takes thirty times the room of a small number.
type part struct {
	text  json.RawMessage // an array of them, without white space in between; nil once they were read
	nodes []*node
	count int
	high  int32 // of the text: 1 more than the depth of the deepest element; 0 while nobody has asked
	// shared says that another array has the nodes too.
	shared bool
}

// partOf makes a part of elements, which stay unread unless one is long: to copy it would cost as much for each level
// of what is in it.
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

// own returns the nodes, to be changed.
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

// depth returns how deep the deepest of the elements is that were not read.
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

// readArray takes the elements of an array: those of a long one stay unread.
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

// readObject takes the members of an object: the values of a large one stay unread.
func (c *container) readObject(text json.RawMessage, spans *agui.Spans) {
	var at []uint32
	for i := agui.FirstMember(text); i >= 0; {
		name, value, next := spans.MemberAt(text, i)
		if name == nil {
			break // deeper than anything that is taken: only what was stored before that was a rule
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

// came returns how many places the object's table has.
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

// member returns the value at a place, to be kept.
func (c *container) member(i int) *node {
	if c.values[i] == unread {
		c.values[i] = c.table.value(i)
	}
	return c.values[i]
}

// unreadAt returns how many nodes reading the element at i would make.
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

// ownAt returns how many nodes it would keep more to change the element at i.
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

// kept returns how many nodes it keeps as a clone, at most.
func (c *container) kept() int {
	if c.table != nil {
		return 1 + len(c.names)
	}
	return 1 + len(c.values)
}

// clone returns a container that can be changed in the place of one that is not changed any more. What both hold is
// shared: elements of long arrays by parts, the others one by one.
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
	// partLength is the number of elements that a part has when it is made; it may grow to twice that. It
	// balances what is moved in a part with the number of parts that are stepped over.
	partLength = 512
)

// count returns the number of members or elements.
func (c *container) count() int { return len(c.values) - c.holes + c.length }

// all goes through the members or elements; the names of elements are empty.
func (c *container) all() iter.Seq2[string, *node] {
	return func(yield func(string, *node) bool) {
		for i, v := range c.values {
			name := ""
			if v != nil && (c.table != nil || c.names != nil) {
				name = c.name(i)
			}
			if v == unread {
				v = c.table.value(i) // this one is not kept
			}
			if v != nil && !yield(name, v) {
				return
			}
		}
		for i := range c.parts {
			p := &c.parts[i]
			for e := range agui.Elements(p.text) { // these nodes are not kept
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

// find returns the place of a member, or -1.
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

// push appends a member that is not there, and pop takes it back.
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

// hide removes the member at a place, and show puts it back.
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

// sparse reports whether most of the places are empty.
func (c *container) sparse() bool { return c.holes > indexed && c.holes > len(c.values)/2 }

// dense returns an object's container without empty places.
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

// seek returns the part that holds the element at i, and where in it.
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

// element returns where the element or member at i stands, to be changed.
func (c *container) element(i int) **node {
	if c.parts == nil {
		return &c.values[i]
	}
	part, at := c.seek(i)
	return &c.parts[part].own()[at]
}

// divide makes parts of an array that is long, once something happens in front of its end.
func (c *container) divide(i int) bool {
	if c.parts == nil && len(c.values) > 2*partLength && i < len(c.values)-1 {
		for nodes := range slices.Chunk(c.values, partLength) {
			c.parts = append(c.parts, part{nodes: nodes, count: len(nodes)})
		}
		c.values, c.length = nil, len(c.values)
	}
	return c.parts != nil
}

// insert puts an element at i, and take removes it.
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
