package agui

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"slices"
)

// Layout describes a conversation as a sequence of segments, each from another conversation (the base) or from a list of its own
// messages. It allows storing a run as what the run added to its parent's history.
// An empty layout is the default rule: every own message replaces, in place, the first base message with its id, or is
// appended in order. The layout of an empty conversation on a base that is not empty has one segment of length 0.
type Layout []Segment

// Segment is a half-open range of the own list if Own is set, else of the base.
type Segment struct {
	Own  bool `json:"own,omitempty"`
	From int  `json:"from"`
	To   int  `json:"to"`
}

// Apply builds the conversation. The result is a new list; base and own are not changed. Apply returns an error if a segment is
// outside its list.
func (l Layout) Apply(base, own []Message) ([]Message, error) {
	if len(l) == 0 {
		return overlay(base, own), nil
	}
	n := 0
	for i, s := range l {
		list := base
		if s.Own {
			list = own
		}
		if s.From < 0 || s.To < s.From || s.To > len(list) {
			return nil, fmt.Errorf("applying layout: segment %d is %d to %d of a list of %d messages", i, s.From, s.To, len(list))
		}
		n += s.To - s.From
	}
	full := make([]Message, 0, n)
	for _, s := range l {
		if s.Own {
			full = append(full, own[s.From:s.To]...)
		} else {
			full = append(full, base[s.From:s.To]...)
		}
	}
	return full, nil
}

// overlay applies the default rule. If several own messages have the id of a base message, the last one replaces it. If several
// have an id that base lacks, all are appended.
func overlay(base, own []Message) []Message {
	full := make([]Message, len(base), len(base)+len(own))
	copy(full, base)
	if len(own) == 0 {
		return full
	}
	first := make(map[string]int, len(own))
	for _, m := range own {
		first[m.ID] = -1
	}
	for i, m := range base {
		if at, ok := first[m.ID]; ok && at < 0 {
			first[m.ID] = i
		}
	}
	for _, m := range own {
		if at := first[m.ID]; at >= 0 {
			full[at] = m
		} else {
			full = append(full, m)
		}
	}
	return full
}

// Diff returns the messages of full that base does not hold with the same content, in order, and the layout that
// builds full from base and these messages. The layout is nil exactly if the default rule builds full. Content is
// equal if Raw is equal byte for byte. The cost is linear in the two lists.
func Diff(base, full []Message) (own []Message, layout Layout) {
	same := 0
	for same < len(base) && same < len(full) && equal(base[same], full[same]) {
		same++
	}
	if same == len(base) && disjoint(base, full[same:]) { // most turns only add
		return append([]Message(nil), full[same:]...), nil
	}
	if same > 0 {
		layout = layout.add(Segment{To: same})
	}
	if same < len(full) {
		find := indexOf(base)
		next := same // the base message that continues the segment
		for _, m := range full[same:] {
			var at int
			if next < len(base) && equal(base[next], m) {
				at = next
			} else {
				at = find(m)
			}
			if at < 0 {
				layout = layout.add(Segment{Own: true, From: len(own), To: len(own) + 1})
				own = append(own, m)
				continue
			}
			layout = layout.add(Segment{From: at, To: at + 1})
			next = at + 1
		}
	}
	if slices.EqualFunc(overlay(base, own), full, equal) {
		return own, nil
	}
	if len(layout) == 0 {
		layout = Layout{{}}
	}
	return own, layout
}

// disjoint reports whether no id is in both lists. It makes a set only of the added messages, since they are few.
func disjoint(base, added []Message) bool {
	ids := make(map[string]struct{}, len(added))
	for _, m := range added {
		ids[m.ID] = struct{}{}
	}
	if len(ids) == 0 {
		return true
	}
	for _, m := range base {
		if _, ok := ids[m.ID]; ok {
			return false
		}
	}
	return true
}

// add appends a segment. It merges s into the last segment if s continues it.
func (l Layout) add(s Segment) Layout {
	if n := len(l); n > 0 && l[n-1].Own == s.Own && l[n-1].To == s.From {
		l[n-1].To = s.To
		return l
	}
	return append(l, s)
}

// contentSeed differs in each process; its hashes never leave it.
var contentSeed = maphash.MakeSeed()

// indexOf returns a function that finds the first message of the list with equal content, or -1. If all ids are unique, it looks up
// by id alone and compares each content once. Otherwise it looks up by a hash of the content, too, so that many messages with one id
// cost linear time.
func indexOf(list []Message) func(Message) int {
	type key struct {
		id  string
		sum uint64
	}
	at := make(map[key]int, len(list))
	unique := true
	for i, m := range list {
		if _, ok := at[key{id: m.ID}]; ok {
			unique = false
			break
		}
		at[key{id: m.ID}] = i
	}
	keyOf := func(m Message) key { return key{id: m.ID} }
	if !unique {
		keyOf = func(m Message) key { return key{m.ID, maphash.Bytes(contentSeed, m.Raw)} }
		clear(at)
		for i, m := range list {
			if _, ok := at[keyOf(m)]; !ok {
				at[keyOf(m)] = i
			}
		}
	}
	return func(m Message) int {
		if i, ok := at[keyOf(m)]; ok && equal(list[i], m) {
			return i
		}
		return -1
	}
}

func equal(a, b Message) bool { return a.ID == b.ID && bytes.Equal(a.Raw, b.Raw) }
