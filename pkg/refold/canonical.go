package refold

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
)

// The record codec drops white space between JSON tokens. What is compared with what comes out of
// records, or is kept at hand in the place of it, has to be without it too; else a record would
// depend on whether its run went through a checkpoint.

// Compacted returns v without white space between tokens: v itself if there is none.
func Compacted(v json.RawMessage) json.RawMessage {
	inString := false
	for i := 0; i < len(v); i++ {
		switch c := v[i]; {
		case c == '"':
			inString = !inString
		case inString && c == '\\':
			i++
		case !inString && (c == ' ' || c == '\n' || c == '\r' || c == '\t'):
			var b bytes.Buffer
			if err := json.Compact(&b, v); err != nil {
				return v // not JSON: the encoder will say so
			}
			return b.Bytes()
		}
	}
	return v
}

// compactedAll is Compacted over a list of messages; the list is copied if one of them changes. What is
// known stands in a record already and has no such space: messages that are still the same bytes in
// memory are passed over without a look into them, so that a turn of a long conversation does not read
// the whole of it again.
func compactedAll(known, messages []agui.Message) []agui.Message {
	out := messages
	at := 0 // the known message that is expected next
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
		raw := Compacted(m.Raw)
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

// adopt returns an input's messages, each that equals a message of the base in value in the base's
// form. Clients write members in an order of their own; without this every input would seem to
// change the whole conversation.
func adopt(base, input []agui.Message) []agui.Message {
	if len(base) == 0 || len(input) == 0 {
		return compactedAll(nil, input)
	}
	byID := make(map[string]agui.Message, len(base))
	for _, m := range base {
		if _, ok := byID[m.ID]; !ok {
			byID[m.ID] = m
		}
	}
	out := append([]agui.Message(nil), compactedAll(nil, input)...)
	for i, m := range out {
		if b, ok := byID[m.ID]; ok && sameValue(b.Raw, m.Raw) {
			out[i] = b
		}
	}
	return out
}

// sameValue reports whether two JSON texts say the same: order of members and escapes aside,
// numbers as they are written. Lone surrogates do not survive decoding, so texts that may hold one
// are compared as they are.
func sameValue(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if surrogates(a) || surrogates(b) {
		return false
	}
	x, okX := decodeValue(a)
	y, okY := decodeValue(b)
	return okX && okY && reflect.DeepEqual(x, y)
}

func surrogates(v json.RawMessage) bool {
	return bytes.Contains(v, []byte(`\ud`)) || bytes.Contains(v, []byte(`\uD`))
}

func decodeValue(v json.RawMessage) (any, bool) {
	d := json.NewDecoder(strings.NewReader(string(v)))
	d.UseNumber()
	var out any
	err := d.Decode(&out)
	return out, err == nil
}
