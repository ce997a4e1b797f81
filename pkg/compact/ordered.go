package compact

import (
	"iter"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
)

// value is a JSON value.
type value interface {
	appendJSON(dst []byte) []byte
}

// ordered holds the members of a JSON object in order. Finding, adding and removing a member cost the same for any number of members.
type ordered[V interface {
	comparable
	value
}] struct {
	list  []named[V]
	index map[string]int // the index in list of each name, if list has more members than indexed
	holes int            // how many members of list were removed: their value is nil
}

type named[V any] struct {
	name string
	v    V
}

// indexed is the number of members above which an object gets an index.
const indexed = 16

func (o *ordered[V]) count() int { return len(o.list) - o.holes }

func (o *ordered[V]) all() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		var none V
		for _, m := range o.list {
			if m.v != none && !yield(m.name, m.v) {
				return
			}
		}
	}
}

func (o *ordered[V]) appendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	first := len(dst)
	for name, v := range o.all() {
		if len(dst) > first {
			dst = append(dst, ',')
		}
		dst = append(agui.AppendString(dst, name), ':')
		dst = v.appendJSON(dst)
	}
	return append(dst, '}')
}

// find returns the index of a member in list, or -1.
func (o *ordered[V]) find(name string) int {
	if o.index != nil {
		if i, ok := o.index[name]; ok {
			return i
		}
		return -1
	}
	var none V
	for i := range o.list {
		if o.list[i].name == name && o.list[i].v != none {
			return i
		}
	}
	return -1
}

// get returns the value of a member, or nil.
func (o *ordered[V]) get(name string) V {
	if i := o.find(name); i >= 0 {
		return o.list[i].v
	}
	var none V
	return none
}

// set replaces a member in place, or appends it.
func (o *ordered[V]) set(name string, v V) {
	if i := o.find(name); i >= 0 {
		o.list[i].v = v
	} else {
		o.push(name, v)
	}
}

// remove removes a member.
func (o *ordered[V]) remove(name string) {
	if i := o.find(name); i >= 0 {
		o.hide(i)
		o.tidy()
	}
}

// push appends a member with a new name; pop undoes it.
func (o *ordered[V]) push(name string, v V) {
	o.list = append(o.list, named[V]{name, v})
	if o.index != nil {
		o.index[name] = len(o.list) - 1
	} else {
		o.reindex()
	}
}

func (o *ordered[V]) pop() {
	last := len(o.list) - 1
	delete(o.index, o.list[last].name)
	o.list = o.list[:last]
}

// hide removes the member at an index and leaves a hole; show undoes it.
func (o *ordered[V]) hide(i int) {
	var none V
	delete(o.index, o.list[i].name)
	o.list[i].v = none
	o.holes++
}

func (o *ordered[V]) show(i int, v V) {
	if o.index != nil {
		o.index[o.list[i].name] = i
	}
	o.list[i].v = v
	o.holes--
}

// tidy closes the holes if most members were removed.
func (o *ordered[V]) tidy() {
	if o.holes <= indexed || o.holes <= len(o.list)/2 {
		return
	}
	var none V
	o.list = slices.DeleteFunc(o.list, func(m named[V]) bool { return m.v == none })
	o.index, o.holes = nil, 0
	o.reindex()
}

func (o *ordered[V]) reindex() {
	if len(o.list) <= indexed {
		return
	}
	var none V
	o.index = make(map[string]int, len(o.list))
	for i, m := range o.list {
		if m.v != none {
			o.index[m.name] = i
		}
	}
}
