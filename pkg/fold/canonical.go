package fold

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

// compactedAll applies record.Compacted to each message. It copies the list if a message changes. The messages in known
// come from a record and are compacted already. A message that shares its bytes with one of them is not read, so that a
// turn of a long conversation does not read the whole conversation again.
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

// sameValue reports whether two JSON texts have the same value. The order of members and the way of escaping do not
// matter; numbers are compared as written.
func sameValue(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, okX := decodeValue(a)
	y, okY := decodeValue(b)
	return okX && okY && reflect.DeepEqual(x, y)
}

// halfMark precedes a lone surrogate that keepHalves has turned into text. It is not a character.
const halfMark = "\U0010FFFF"

// keepHalves turns each lone surrogate escape into text, since decoding would make all of them equal. It returns false
// if v contains halfMark.
func keepHalves(v []byte) ([]byte, bool) {
	if bytes.Contains(v, []byte(halfMark)) {
		return nil, false
	}
	if !bytes.Contains(v, []byte(`\u`)) {
		return v, true
	}
	if bytes.Contains(bytes.ToLower(v), []byte(`\udbff\udfff`)) {
		return nil, false
	}
	out := make([]byte, 0, len(v))
	for i := 0; i < len(v); {
		n := 1
		switch {
		case v[i] != '\\':
		case !half(v[i:]):
			n = min(2, len(v)-i)
		case v[i+3]|0x20 < 'c' && half(v[i+6:]) && v[i+9]|0x20 >= 'c': // a pair
			n = 12
		default:
			out = append(append(out, halfMark...), bytes.ToLower(v[i+2:i+6])...)
			i += 6
			continue
		}
		out = append(out, v[i:i+n]...)
		i += n
	}
	return out, true
}

// half reports whether v begins with the escape of a surrogate.
func half(v []byte) bool {
	return len(v) >= 6 && v[0] == '\\' && v[1] == 'u' && v[2]|0x20 == 'd' && strings.IndexByte("89abcdef", v[3]|0x20) >= 0
}

func decodeValue(v json.RawMessage) (any, bool) {
	text, ok := keepHalves(v)
	if !ok {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var out any
	err := d.Decode(&out)
	return out, err == nil
}
