// Package few has a map for what is mostly few: a map of Go takes 256 bytes and more from its first entry on.
package few

import "iter"

// Map is a map that takes little memory while it has few entries. The zero Map is empty. Of copies of a Map, only one may be used.
type Map[K comparable, V any] struct {
	first *entry[K, V]
	many  map[K]V // all entries if they have been more than most, else nil
}

type entry[K comparable, V any] struct {
	key   K
	value V
	next  *entry[K, V]
}

const most = 8

// Sized returns a Map with room for n entries.
func Sized[K comparable, V any](n int) (m Map[K, V]) {
	if n > most {
		m.many = make(map[K]V, n)
	}
	return m
}

// Get returns the value of a key.
func (m *Map[K, V]) Get(key K) (value V, ok bool) {
	if m.many != nil {
		value, ok = m.many[key]
	} else if at, _ := m.find(key); *at != nil {
		value, ok = (*at).value, true
	}
	return value, ok
}

// At returns the value of a key, zero if there is none.
func (m *Map[K, V]) At(key K) V {
	value, _ := m.Get(key)
	return value
}

// Set sets the value of a key.
func (m *Map[K, V]) Set(key K, value V) {
	if m.many == nil {
		at, before := m.find(key)
		if *at != nil {
			(*at).value = value
			return
		}
		if before < most {
			*at = &entry[K, V]{key: key, value: value}
			return
		}
		m.many = make(map[K]V, 2*most)
		for ; m.first != nil; m.first = m.first.next {
			m.many[m.first.key] = m.first.value
		}
	}
	m.many[key] = value
}

// Delete removes a key.
func (m *Map[K, V]) Delete(key K) {
	if at, _ := m.find(key); *at != nil {
		*at = (*at).next
	} else if delete(m.many, key); len(m.many) == 0 {
		m.many = nil
	}
}

// find returns where the list has a key, or its end, and how many entries are before that.
func (m *Map[K, V]) find(key K) (at **entry[K, V], before int) {
	at = &m.first
	for ; *at != nil && (*at).key != key; at = &(*at).next {
		before++
	}
	return at, before
}

// Len returns the number of entries.
func (m *Map[K, V]) Len() int {
	n := len(m.many)
	for e := m.first; e != nil; e = e.next {
		n++
	}
	return n
}

// All yields all entries, in no order.
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for k, v := range m.many {
			if !yield(k, v) {
				return
			}
		}
		for e := m.first; e != nil; e = e.next {
			if !yield(e.key, e.value) {
				return
			}
		}
	}
}
