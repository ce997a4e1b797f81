package compact

import (
	"iter"
	"slices"
)

// container holds the members of an object or the elements of an array. To look at one, to add and to
// remove one costs about the same however many there are.
type container struct {
	// values are an object's, in order, nil where a member was removed; or an array's, while nothing was put
	// in between or removed there, or there are few.
	values []*node
	names  []string       // of an object's members
	index  map[string]int // place of each name, for objects that are not small
	holes  int            // members that were removed
	parts  [][]*node      // an array's elements otherwise
	length int            // of parts
}

const (
	// indexed is the number of members above which an object gets an index.
	indexed = 16
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
			if c.names != nil {
				name = c.names[i]
			}
			if v != nil && !yield(name, v) {
				return
			}
		}
		for _, part := range c.parts {
			for _, v := range part {
				if !yield("", v) {
					return
				}
			}
		}
	}
}

// find returns the place of a member, or -1.
func (c *container) find(name string) int {
	if c.index != nil {
		if i, ok := c.index[name]; ok {
			return i
		}
		return -1
	}
	for i, n := range c.names {
		if n == name && c.values[i] != nil {
			return i
		}
	}
	return -1
}

// push appends a member that is not there, and pop takes it back.
func (c *container) push(name string, v *node) {
	c.names, c.values = append(c.names, name), append(c.values, v)
	if c.index != nil {
		c.index[name] = len(c.names) - 1
	} else if len(c.names) > indexed {
		c.reindex()
	}
}

func (c *container) pop() {
	last := len(c.names) - 1
	delete(c.index, c.names[last])
	c.names, c.values = c.names[:last], c.values[:last]
}

func (c *container) reindex() {
	c.index = make(map[string]int, len(c.names))
	for i, name := range c.names {
		if c.values[i] != nil {
			c.index[name] = i
		}
	}
}

// hide removes the member at a place, and show puts it back.
func (c *container) hide(i int) {
	delete(c.index, c.names[i])
	c.values[i] = nil
	c.holes++
}

func (c *container) show(i int, v *node) {
	if c.index != nil {
		c.index[c.names[i]] = i
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
	if last := len(c.parts) - 1; i >= c.length-len(c.parts[last]) {
		return last, i - (c.length - len(c.parts[last]))
	}
	for i >= len(c.parts[part]) {
		i -= len(c.parts[part])
		part++
	}
	return part, i
}

// element returns where the element at i stands.
func (c *container) element(i int) **node {
	if c.parts == nil {
		return &c.values[i]
	}
	part, at := c.seek(i)
	return &c.parts[part][at]
}

// part makes parts of an array that is long, once something happens in front of its end.
func (c *container) part(i int) bool {
	if c.parts == nil && len(c.values) > 2*partLength && i < len(c.values)-1 {
		c.parts = slices.Collect(slices.Chunk(c.values, partLength))
		c.values, c.length = nil, len(c.values)
	}
	return c.parts != nil
}

// insert puts an element at i, and take removes it.
func (c *container) insert(i int, v *node) {
	if !c.part(i) {
		c.values = slices.Insert(c.values, i, v)
		return
	}
	part, at := c.seek(i)
	p := slices.Insert(c.parts[part], at, v)
	c.parts[part] = p
	c.length++
	if len(p) > 2*partLength {
		c.parts[part] = p[:partLength:partLength]
		c.parts = slices.Insert(c.parts, part+1, slices.Clone(p[partLength:]))
	}
}

func (c *container) take(i int) {
	if !c.part(i) {
		c.values = slices.Delete(c.values, i, i+1)
		return
	}
	part, at := c.seek(i)
	c.parts[part] = slices.Delete(c.parts[part], at, at+1)
	c.length--
	if len(c.parts[part]) == 0 && len(c.parts) > 1 {
		c.parts = slices.Delete(c.parts, part, part+1)
	}
}
