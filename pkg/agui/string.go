package agui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// String is a string of an event, for encoding/json. AG-UI's strings are UTF-16 and may contain half a surrogate pair, which
// is WTF-8 in Go (see Text). encoding/json turns each half into U+FFFD, so that two ids may become one. String encodes a
// half as its \u escape. Otherwise it encodes like encoding/json without HTML escaping.
//
// Use String, Strings or StringMap wherever ids, names and models of events are encoded.
type String string

// MarshalJSON implements json.Marshaler.
func (s String) MarshalJSON() ([]byte, error) { return s.appendJSON(nil), nil }

// UnmarshalJSON implements json.Unmarshaler.
func (s *String) UnmarshalJSON(b []byte) error {
	switch kindOf(b) {
	case kindNull:
		return nil
	case kindString:
		*s = String(unquote(valid(b)))
		return nil
	}
	return fmt.Errorf("decoding string: it is %s", kindOf(b))
}

func (s String) appendJSON(dst []byte) []byte {
	return append(dst, lineEnds.Replace(string(AppendString(nil, string(s))))...)
}

// lineEnds escapes two characters as encoding/json does, since JavaScript once read them as line ends.
var lineEnds = strings.NewReplacer("\u2028", `\u2028`, "\u2029", `\u2029`)

// valid makes JSON from encoding/json, which does not check UTF-8, valid UTF-8.
func valid(b []byte) []byte {
	if utf8.Valid(b) {
		return b
	}
	return bytes.ToValidUTF8(b, []byte("\ufffd"))
}

// Strings is a list of strings, each encoded as a String.
type Strings []string

// MarshalJSON implements json.Marshaler.
func (l Strings) MarshalJSON() ([]byte, error) {
	if l == nil {
		return []byte("null"), nil
	}
	b := []byte{'['}
	for i, s := range l {
		if i > 0 {
			b = append(b, ',')
		}
		b = String(s).appendJSON(b)
	}
	return append(b, ']'), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *Strings) UnmarshalJSON(b []byte) error {
	var list []String
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	if *l = nil; list != nil {
		*l = make(Strings, len(list))
	}
	for i, s := range list {
		(*l)[i] = string(s)
	}
	return nil
}

// StringMap is a map with string keys, each encoded as a String.
type StringMap[V any] map[string]V

// MarshalJSON implements json.Marshaler. Names are sorted.
func (m StringMap[V]) MarshalJSON() ([]byte, error) {
	if m == nil {
		return []byte("null"), nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, name := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(append(String(name).appendJSON(nil), ':'))
		if err := enc.Encode(m[name]); err != nil {
			return nil, err
		}
		b.Truncate(b.Len() - len("\n"))
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *StringMap[V]) UnmarshalJSON(b []byte) error {
	switch kindOf(b) {
	case kindNull:
		*m = nil
		return nil
	case kindObject:
	default:
		return fmt.Errorf("decoding map: it is %s", kindOf(b))
	}
	if *m == nil {
		*m = StringMap[V]{}
	}
	for name, raw := range Members(valid(b)) {
		var v V
		if err := json.Unmarshal(raw, &v); err != nil {
			return err
		}
		(*m)[name] = v
	}
	return nil
}
