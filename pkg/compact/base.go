package compact

import (
	"bytes"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
)

// Base is an immutable list of messages from which folds start (NewOn). Bases made by Extend share one list and its indexes, so
// starting a fold and extending the longest Base cost the same for any length of the list. Neither Bases that share a list nor the
// folds that start from them are safe for concurrent use. The zero Base is empty.
type Base struct {
	// messages is a prefix of known.list.
	messages []agui.Message
	known    *known
}

// known is what Bases share: the list and its indexes. Each index is built only as far as it is used.
type known struct {
	list   []agui.Message // of the longest Base; its messages never change
	first  map[string]int // the first index of each id in list[:ids]
	ids    int
	calls  map[string]int // the index of the first message that holds a tool call with each id, in list[:called]
	called int
	sizes  []int // the size as JSON, in bytes, of each prefix of list
}

// NewBase returns a Base of these messages, which must not change.
func NewBase(messages []agui.Message) Base {
	return Base{messages, &known{list: messages[:len(messages):len(messages)]}}
}

// Messages returns the list. It must not be changed.
func (b Base) Messages() []agui.Message { return b.messages[:len(b.messages):len(b.messages)] }

// Is reports whether b and o are the same list, without comparing messages.
func (b Base) Is(o Base) bool { return b.known == o.known && len(b.messages) == len(o.messages) }

// Bytes returns the size of the messages as JSON in bytes, without separators.
func (b Base) Bytes() int {
	k, n := b.known, len(b.messages)
	if n == 0 {
		return 0
	}
	for len(k.sizes) < n {
		size := len(k.list[len(k.sizes)].Raw)
		if len(k.sizes) > 0 {
			size += k.sizes[len(k.sizes)-1]
		}
		k.sizes = append(k.sizes, size)
	}
	return k.sizes[n-1]
}

// List returns a key of the list that b shares, which is equal for all Bases that share the list, and about how many bytes
// of memory the list holds.
func (b Base) List() (list any, held int) {
	if b.known == nil {
		return nil, 0
	}
	whole := Base{b.known.list, b.known}
	return b.known, whole.Bytes() + messageOverhead*len(b.known.list)
}

// messageOverhead is about how many bytes a message takes besides its JSON: the struct, its id and role, its size and
// its index entry, with the unused capacity of slices and maps.
const messageOverhead = 200

// Extend returns b with messages appended. The cost is proportional to own if b is the longest Base of its list, or if the longer
// ones continue with the same messages; otherwise Extend copies the list.
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
	return len(list) >= len(with) && slices.EqualFunc(list[:len(with)], with, sameMessage)
}

func sameMessage(a, b agui.Message) bool {
	return a.ID == b.ID && a.Role == b.Role && bytes.Equal(a.Raw, b.Raw)
}

// Has reports whether a message of b has the id.
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

// hasCall reports whether a message of b holds a tool call with the id.
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
