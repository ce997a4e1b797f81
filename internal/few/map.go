package few

import "maps"

// Map is a map that takes little memory while it has few entries. The zero Map is empty. Of copies of a Map, only one may be changed.
type Map[K comparable, V any] struct {
	first *entry[K, V] // a list of most entries at most
	many  map[K]V      // or else all of them
}

type entry[K comparable, V any] struct {
	key   K
	value V
	next  *entry[K, V]
}

const most = 8

// find returns where the list has a key, or its end.
func (m *Map[K, V]) find(key K) **entry[K, V] {
	at := &m.first
	for *at != nil && (*at).key != key {
		at = &(*at).next
	}
	return at
}

// Get returns the value of a key.
func (m *Map[K, V]) Get(key K) (value V, ok bool) {
	if e := *m.find(key); e != nil {
		return e.value, true
	}
	value, ok = m.many[key]
	return value, ok
}

// At returns the value of a key, zero if there is none.
func (m *Map[K, V]) At(key K) V {
	value, _ := m.Get(key)
	return value
}

// Set sets the value of a key.
func (m *Map[K, V]) Set(key K, value V) {
	switch at := m.find(key); {
	case *at != nil:
		(*at).value = value
	case m.many == nil && m.Len() < most:
		*at = &entry[K, V]{key: key, value: value}
	default:
		if m.many == nil {
			m.many, m.first = m.Copy(), nil
		}
		m.many[key] = value
	}
}

// Delete removes a key.
func (m *Map[K, V]) Delete(key K) {
	if at := m.find(key); *at != nil {
		*at = (*at).next
	} else if delete(m.many, key); len(m.many) == 0 {
		m.many = nil
	}
}

// Len returns the number of entries.
func (m *Map[K, V]) Len() int {
	n := len(m.many)
	for e := m.first; e != nil; e = e.next {
		n++
	}
	return n
}

// Copy returns all entries.
func (m *Map[K, V]) Copy() map[K]V {
	all := make(map[K]V, m.Len())
	maps.Copy(all, m.many)
	for e := m.first; e != nil; e = e.next {
		all[e.key] = e.value
	}
	return all
}
