package compact

import (
	"bytes"

	"github.com/skeinhq/skein/pkg/agui"
)

// Base is a list of messages from which folds start, and which Extend makes longer. Bases that were made of
// each other share one list, and what finds a message in it: to extend the longest of them, and to start a
// fold from any (NewOn), costs the same however long it is. Neither they nor folds that start from them are safe for
// concurrent use. The zero Base is empty.
type Base struct {
	// messages is the beginning of known.list.
	messages []agui.Message
	known    *known
}

// known is what Bases share. It is worked out as far as somebody asks.
type known struct {
	list  []agui.Message // of the longest of them; what is in it never changes
	first map[string]int // the first place of each id in list[:ids]
	ids   int
	calls map[string]int // the first place that holds a tool call of each id, in list[:called]
	// called is how far calls are known.
	called int
	sums   []sum // of each beginning of the list
}

// sum is of bytes: of messages as JSON, and of the contents of activities.
type sum struct{ messages, contents int }

// NewBase returns a Base of these messages, which must not change.
func NewBase(messages []agui.Message) Base {
	return Base{messages, &known{list: messages[:len(messages):len(messages)]}}
}

// Messages returns the list. It must not be changed.
func (b Base) Messages() []agui.Message { return b.messages[:len(b.messages):len(b.messages)] }

// Is reports whether b and o are one list, without a look at the messages.
func (b Base) Is(o Base) bool { return b.known == o.known && len(b.messages) == len(o.messages) }

// Bytes returns the size of the messages as JSON, but for what joins them.
func (b Base) Bytes() int { return b.sum().messages }

// List names the list that b shares, which is the same for all Bases that share it, and returns about how
// much memory that holds as long as one of them is there.
func (b Base) List() (list any, held int) {
	if b.known == nil {
		return nil, 0
	}
	whole := Base{b.known.list, b.known}
	return b.known, whole.Bytes() + messageOverhead*len(b.known.list)
}

// messageOverhead is about what a message takes beside its JSON: itself, its id and role, its sum and its
// place among the ids, with what lists and maps keep free.
const messageOverhead = 200

// Extend returns the list with messages behind it. It costs in proportion to those where b is the longest of its
// kind, or where the longer ones go on with the same messages; else the list is copied.
func (b Base) Extend(own []agui.Message) Base {
	k, n := b.known, len(b.messages)
	switch {
	case k == nil:
		return NewBase(append([]agui.Message(nil), own...))
	case n == len(k.list):
		k.list = append(k.list, own...)
	case !begins(k.list[n:], own):
		k = &known{list: append(append(make([]agui.Message, 0, n+2*len(own)), b.messages...), own...)}
	}
	return Base{k.list[:n+len(own)], k}
}

func begins(list, with []agui.Message) bool {
	if len(list) < len(with) {
		return false
	}
	for i, m := range with {
		if o := list[i]; o.ID != m.ID || o.Role != m.Role || !bytes.Equal(o.Raw, m.Raw) {
			return false
		}
	}
	return true
}

// Has reports whether a message has the id.
func (b Base) Has(id string) bool {
	k := b.known
	if k == nil {
		return false
	}
	if k.first == nil {
		k.first = make(map[string]int, len(k.list))
	}
	for ; k.ids < len(b.messages); k.ids++ {
		if _, ok := k.first[k.list[k.ids].ID]; !ok {
			k.first[k.list[k.ids].ID] = k.ids
		}
	}
	at, ok := k.first[id]
	return ok && at < len(b.messages)
}

// hasCall reports whether a message holds a tool call of the id.
func (b Base) hasCall(id string) bool {
	k := b.known
	if k == nil {
		return false
	}
	if k.calls == nil {
		k.calls = map[string]int{}
	}
	for ; k.called < len(b.messages); k.called++ {
		m := fromMessage(k.list[k.called])
		if !m.hasCalls() {
			continue
		}
		for _, call := range parseCalls(agui.Lookup(m.raw, "toolCalls")).list {
			if _, ok := k.calls[call.id]; !ok && call.odd == nil {
				k.calls[call.id] = k.called
			}
		}
	}
	at, ok := k.calls[id]
	return ok && at < len(b.messages)
}

func (b Base) sum() sum {
	k, n := b.known, len(b.messages)
	if n == 0 {
		return sum{}
	}
	for len(k.sums) < n {
		var s sum
		if len(k.sums) > 0 {
			s = k.sums[len(k.sums)-1]
		}
		m := k.list[len(k.sums)]
		s.messages += len(m.Raw)
		s.contents += fromMessage(m).contentBytes()
		k.sums = append(k.sums, s)
	}
	return k.sums[n-1]
}
