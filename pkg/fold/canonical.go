package fold

import (
	"bytes"
	"encoding/json"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// compactedAll applies record.Compacted to each message. It copies the list if a message changes. The messages in known
// come from a record and are compacted already. A message that shares its bytes with one of them is not read, so that a
// run in a long conversation does not read the whole conversation again.
func compactedAll(known, messages []agui.Message) []agui.Message {
	out := messages
	at := 0 // index of the known message that is expected next
	for i, m := range messages {
		if at < len(known) {
			k := known[at]
			if k.ID == m.ID {
				at++
			}
			if len(k.Raw) == len(m.Raw) && len(m.Raw) > 0 && &k.Raw[0] == &m.Raw[0] {
				continue
			}
		}
		raw := record.Compacted(m.Raw)
		if len(raw) == len(m.Raw) {
			continue
		}
		if &out[0] == &messages[0] {
			out = append([]agui.Message(nil), messages...)
		}
		out[i].Raw = raw
	}
	return out
}

// adopt returns an input's messages. Each one that equals a message of the base in value is replaced by that message.
// Clients write members in their own order; without this, every input would seem to change the whole conversation.
func adopt(base, input []agui.Message) []agui.Message {
	if len(base) == 0 || len(input) == 0 {
		return compactedAll(nil, input)
	}
	type name struct{ id, role string }
	named := make(map[name]agui.Message, len(base))
	for _, m := range base {
		if _, ok := named[name{m.ID, m.Role}]; !ok {
			named[name{m.ID, m.Role}] = m
		}
	}
	out := append([]agui.Message(nil), compactedAll(nil, input)...)
	for i, m := range out {
		if b, ok := named[name{m.ID, m.Role}]; ok && sameValue(b.Raw, m.Raw) {
			out[i] = b
		}
	}
	return out
}

// sameValue reports whether two messages have the same value. The order of members and the way of escaping do not matter; numbers are
// compared as written.
func sameValue(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	patch, err := lineage.Patch(a, b)
	return err == nil && string(patch) == "[]"
}
