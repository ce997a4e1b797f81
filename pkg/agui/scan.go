package agui

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"iter"
	"math"
	"strconv"
	"unicode/utf8"
)

// MaxDepth is how deep an event and the state may be nested. A value at the top level has depth 1.
//
// What a fold makes of events returns inside deeper values: in a snapshot, in the input of the next run, in the event that
// repeats that input. So each of these has its own limit, and what a fold holds always fits:
//
//	state            MaxDepth          a STATE_SNAPSHOT has 1 more
//	message          MaxMessageDepth   a tool call's metadata, as deep as an event can bring it; a MESSAGES_SNAPSHOT has 2 more
//	input            MaxInputDepth     of messages
//	RUN_STARTED      MaxEventDepth     of an input
const (
	MaxDepth        = 512
	MaxMessageDepth = MaxDepth - 1 + len("{[{")
	MaxInputDepth   = MaxMessageDepth + len("{[")
	MaxEventDepth   = MaxInputDepth + len("{")
)

// maxDepth returns how deep an event of the type may be nested.
func (t Type) maxDepth() int {
	switch t {
	case RunStarted:
		return MaxEventDepth
	case MessagesSnapshot:
		return MaxMessageDepth + len("{[")
	case StateSnapshot:
		return MaxDepth + len("{")
	}
	return MaxDepth
}

// The scanner reads JSON (RFC 8259) in place: it checks the grammar, finds where values begin and end, and copies nothing.
// Below, "checked" means that a text has passed the scanner.

// checked is the start depth for a checked text, which needs no limit.
const checked = math.MinInt32

// within returns the start depth that allows a text to be nested depth levels deep, since the scanner stops at MaxDepth.
func within(depth int) int { return MaxDepth - depth }

// tooDeep reports whether a checked value is nested deeper than depth.
func tooDeep(v json.RawMessage, depth int) bool {
	_, err := skipValue(v, 0, within(depth))
	return len(v) > 0 && err != nil
}

// skipSpace returns the index of the first byte at or after i that is not white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) {
		switch b[i] {
		case ' ', '\t', '\n', '\r':
			i++
		default:
			return i
		}
	}
	return i
}

// skipValue checks the value that begins at b[i] and returns the index after it.
func skipValue(b []byte, i, depth int) (int, error) { return skipNoting(b, i, depth, nil) }

// skipNoting is skipValue, but sets *beyond if the value contains a number that no double can hold. beyond may be nil.
func skipNoting(b []byte, i, depth int, beyond *bool) (int, error) {
	if i >= len(b) {
		return i, errTruncated
	}
	switch c := b[i]; c {
	case '"':
		return skipString(b, i)
	case '{':
		return skipObject(b, i, depth, beyond)
	case '[':
		return skipArray(b, i, depth, beyond)
	case 't':
		return skipWord(b, i, "true")
	case 'f':
		return skipWord(b, i, "false")
	case 'n':
		return skipWord(b, i, "null")
	default:
		if c == '-' || (c >= '0' && c <= '9') {
			return skipNumber(b, i, beyond)
		}
		return i, syntaxAt(i)
	}
}

func skipObject(b []byte, i, depth int, beyond *bool) (int, error) {
	if depth >= MaxDepth {
		return i, errTooDeep
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, nil
	}
	for {
		var err error
		if i >= len(b) {
			return i, errTruncated
		}
		if b[i] != '"' {
			return i, syntaxAt(i)
		}
		if i, err = skipString(b, i); err != nil {
			return i, err
		}
		if i, err = skipByte(b, i, ':'); err != nil {
			return i, err
		}
		if i, err = skipNoting(b, skipSpace(b, i), depth+1, beyond); err != nil {
			return i, err
		}
		i = skipSpace(b, i)
		if i >= len(b) {
			return i, errTruncated
		}
		switch b[i] {
		case ',':
			i = skipSpace(b, i+1)
		case '}':
			return i + 1, nil
		default:
			return i, syntaxAt(i)
		}
	}
}

func skipArray(b []byte, i, depth int, beyond *bool) (int, error) {
	if depth >= MaxDepth {
		return i, errTooDeep
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1, nil
	}
	for {
		var err error
		if i, err = skipNoting(b, i, depth+1, beyond); err != nil {
			return i, err
		}
		i = skipSpace(b, i)
		if i >= len(b) {
			return i, errTruncated
		}
		switch b[i] {
		case ',':
			i = skipSpace(b, i+1)
		case ']':
			return i + 1, nil
		default:
			return i, syntaxAt(i)
		}
	}
}

// plain marks the bytes that a JSON string may hold without an escape.
var plain = func() (t [256]bool) {
	for c := 0x20; c < 256; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// plain8 reports whether eight bytes are all plain.
func plain8(x uint64) bool {
	const low, high = 0x0101010101010101, 0x8080808080808080
	quote, backslash := x^low*'"', x^low*'\\'
	return ((x-low*0x20)&^x|(quote-low)&^quote|(backslash-low)&^backslash)&high == 0
}

// skipString checks the string whose opening quote is b[i].
func skipString(b []byte, i int) (int, error) {
	i++
	for {
		for len(b)-i >= 8 && plain8(binary.LittleEndian.Uint64(b[i:])) {
			i += 8
		}
		for i < len(b) && plain[b[i]] {
			i++
		}
		if i >= len(b) {
			return i, errTruncated
		}
		switch b[i] {
		case '"':
			return i + 1, nil
		case '\\':
			if i+1 >= len(b) {
				return i, errTruncated
			}
			switch b[i+1] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				i += 2
			case 'u':
				if i+6 > len(b) {
					return i, errTruncated
				}
				if _, ok := hex4(b[i+2:]); !ok {
					return i, syntaxAt(i)
				}
				i += 6
			default:
				return i, syntaxAt(i)
			}
		default: // a control character
			return i, syntaxAt(i)
		}
	}
}

func skipNumber(b []byte, i int, beyond *bool) (int, error) {
	start := i
	if b[i] == '-' {
		i++
	}
	switch {
	case i >= len(b):
		return i, errTruncated
	case b[i] == '0':
		i++
	case b[i] >= '1' && b[i] <= '9':
		i = skipDigits(b, i)
	default:
		return i, syntaxAt(i)
	}
	large := i-start > 200
	if i < len(b) && b[i] == '.' {
		n := skipDigits(b, i+1)
		if n == i+1 {
			return n, syntaxAt(n)
		}
		i = n
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		negative := i < len(b) && b[i] == '-'
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		n := skipDigits(b, i)
		if n == i {
			return n, syntaxAt(n)
		}
		large = large || n-i > 2 && !negative // with two digits it is below 1e300
		i = n
	}
	if large && beyond != nil && !*beyond {
		_, err := strconv.ParseFloat(string(b[start:i]), 64)
		*beyond = err != nil // out of range; a number that is too small becomes 0 without an error
	}
	return i, nil
}

// withinDoubles returns a checked text with null in place of each number that no double can hold.
func withinDoubles(b []byte) []byte {
	out := make([]byte, 0, len(b)) // null is shorter than every number that it replaces
	kept := 0
	for i := 0; i < len(b); {
		start, beyond := i, false
		switch c := b[i]; {
		case c == '"':
			i, _ = skipString(b, i) // a checked text gives no error, here and below
		case c == '-' || c >= '0' && c <= '9':
			i, _ = skipNumber(b, i, &beyond)
		default:
			i++
		}
		if beyond {
			out = append(append(out, b[kept:start]...), "null"...)
			kept = i
		}
	}
	return append(out, b[kept:]...)
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	return i
}

func skipWord(b []byte, i int, word string) (int, error) {
	if len(b)-i < len(word) {
		return i, errTruncated
	}
	if string(b[i:i+len(word)]) != word {
		return i, syntaxAt(i)
	}
	return i + len(word), nil
}

func skipByte(b []byte, i int, c byte) (int, error) {
	i = skipSpace(b, i)
	if i >= len(b) {
		return i, errTruncated
	}
	if b[i] != c {
		return i, syntaxAt(i)
	}
	return i + 1, nil
}

// Check returns an error unless b is one JSON text: UTF-8, well formed, at most MaxDepth deep, with nothing but white space
// around it. IsMalformed is true for every error.
func Check(b []byte) error { return CheckDepth(b, MaxDepth) }

// CheckDepth is Check with another limit.
func CheckDepth(b []byte, depth int) error { return checkNoting(b, depth, nil) }

// checkNoting is CheckDepth with the argument beyond of skipNoting.
func checkNoting(b []byte, depth int, beyond *bool) error {
	if !utf8.Valid(b) {
		return errNotUTF8
	}
	i, err := skipNoting(b, skipSpace(b, 0), within(depth), beyond)
	if err != nil {
		return atDepth(err, "", depth)
	}
	if i = skipSpace(b, i); i != len(b) {
		return syntaxAt(i)
	}
	return nil
}

// Members iterates over the members of a checked JSON object in order. Values have no white space around them. It yields nothing
// for any other value. It yields a repeated name once, at its first position and with its last value, as JavaScript does.
func Members(obj json.RawMessage) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		var room [fewMembers]memberSpan
		for _, m := range unrepeated(obj, memberSpans(room[:0], obj)) {
			if !yield(unquote(m.name(obj)), obj[m.value:m.end]) {
				return
			}
		}
	}
}

// memberSpan has the offsets of a member in its object: of its name, with the quotes, and of its value.
type memberSpan struct{ start, nameEnd, value, end uint32 }

func (m memberSpan) name(obj json.RawMessage) json.RawMessage { return obj[m.start:m.nameEnd] }

func memberSpans(spans []memberSpan, obj json.RawMessage) []memberSpan {
	for i := FirstMember(obj); i >= 0; {
		m, next := (*Spans)(nil).memberAt(obj, i)
		if next == noMember {
			break
		}
		spans = append(spans, m)
		i = next
	}
	return spans
}

// fewMembers is the number of members up to which repeats compares names with one another.
const fewMembers = 16

// unrepeated returns the members with each name once.
func unrepeated(obj json.RawMessage, members []memberSpan) []memberSpan {
	if len(members) <= fewMembers && !repeats(obj, members) {
		return members
	}
	places := make(map[string]int, len(members))
	kept := members[:0]
	for _, m := range members {
		name := unquote(m.name(obj))
		if at, ok := places[name]; ok {
			kept[at].value, kept[at].end = m.value, m.end
			continue
		}
		places[name] = len(kept)
		kept = append(kept, m)
	}
	return kept
}

// repeats reports whether a name is repeated.
func repeats(obj json.RawMessage, members []memberSpan) bool {
	seen := uint64(0) // hashes of names
	for i, m := range members {
		name := TextOf(m.name(obj))
		hash := ^uint64(0) // an empty name, or one with escapes, may equal any other
		if len(name) > 0 && bytes.IndexByte(name, '\\') < 0 {
			hash = 1 << (fieldHash([]byte(name)) % 64)
		}
		if seen&hash != 0 {
			for _, o := range members[:i] {
				if TextOf(o.name(obj)).Equal(name) {
					return true
				}
			}
		}
		seen |= hash
	}
	return false
}

// noMember is an index that is neither that of a member nor that of the end.
const noMember = -2

// FirstMember returns the offset of the first member of a checked JSON object, for MemberAt. It is negative for an
// empty object and for any other value.
func FirstMember(obj json.RawMessage) int {
	i := skipSpace(obj, 0)
	if i >= len(obj) || obj[i] != '{' {
		return noMember
	}
	return memberFrom(obj, i+1)
}

func memberFrom(obj json.RawMessage, i int) int {
	if i = skipSpace(obj, i); i < len(obj) && obj[i] == '"' {
		return i
	}
	return -1
}

// MemberAt returns the name, with the quotes, and the value of the member at offset i of a checked JSON object, and the
// offset of the next member. That offset is negative after the last member.
func (s *Spans) MemberAt(obj json.RawMessage, i int) (name, value json.RawMessage, next int) {
	m, next := s.memberAt(obj, i)
	return m.name(obj), obj[m.value:m.end], next
}

func (s *Spans) memberAt(obj json.RawMessage, i int) (m memberSpan, next int) {
	nameEnd, err := skipString(obj, i)
	if err != nil {
		return memberSpan{}, noMember
	}
	start := skipSpace(obj, skipSpace(obj, nameEnd)+1)
	end, err := s.skip(obj, start)
	if err != nil {
		return memberSpan{}, noMember
	}
	if next = skipSpace(obj, end); next < len(obj) && obj[next] == ',' {
		next++
	}
	return memberSpan{uint32(i), uint32(nameEnd), uint32(start), uint32(end)}, memberFrom(obj, next)
}

// Elements iterates over the elements of a checked JSON array. It yields nothing for any other value.
func Elements(arr json.RawMessage) iter.Seq[json.RawMessage] { return (*Spans)(nil).Elements(arr) }

// Elements is like the function Elements, but does not scan elements again if s has spans for them.
func (s *Spans) Elements(arr json.RawMessage) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		i := skipSpace(arr, 0)
		if i >= len(arr) || arr[i] != '[' {
			return
		}
		i = skipSpace(arr, i+1)
		for i < len(arr) && arr[i] != ']' {
			end, err := s.skip(arr, i)
			if err != nil || !yield(arr[i:end]) {
				return
			}
			if i = skipSpace(arr, end); i < len(arr) && arr[i] == ',' {
				i = skipSpace(arr, i+1)
			}
		}
	}
}

// Lookup returns the value of the last member with that name in a checked JSON object, or nil.
func Lookup(obj json.RawMessage, name string) json.RawMessage {
	var found json.RawMessage
	for i := FirstMember(obj); i >= 0; {
		n, v, next := (*Spans)(nil).MemberAt(obj, i)
		if next != noMember && isName(n, name) {
			found = v
		}
		i = next
	}
	return found
}

// isName reports whether a member's name, given with its quotes, equals the argument is.
func isName(name json.RawMessage, is string) bool {
	in := name[1 : len(name)-1]
	if bytes.IndexByte(in, '\\') < 0 {
		return string(in) == is
	}
	return unquote(name) == is
}

// Without returns the object without the members of that name, or obj itself if there are none.
func Without(obj json.RawMessage, name string) json.RawMessage { return with(obj, name, nil) }

// with replaces the value of a member, or removes the member if value is nil. It returns obj itself if the member is absent.
func with(obj json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	out, _ := mapMembers(obj, func(n string, v json.RawMessage) (json.RawMessage, bool) {
		if n == name {
			return value, true
		}
		return v, false
	})
	return out
}

// kind is the JSON type of a value, by its first byte.
type kind byte

const (
	kindNone kind = iota
	kindString
	kindNumber
	kindBool
	kindNull
	kindObject
	kindArray
)

func kindOf(v json.RawMessage) kind {
	if len(v) == 0 {
		return kindNone
	}
	switch v[0] {
	case '"':
		return kindString
	case '{':
		return kindObject
	case '[':
		return kindArray
	case 't', 'f':
		return kindBool
	case 'n':
		return kindNull
	default:
		return kindNumber
	}
}

func (k kind) String() string {
	return [...]string{"nothing", "a string", "a number", "a boolean", "null", "an object", "an array"}[k]
}

// IsObject reports whether v is a JSON object. Like IsString and IsArray, it requires a checked value.
func IsObject(v json.RawMessage) bool { return kindOf(v) == kindObject }

// IsString reports whether v is a JSON string.
func IsString(v json.RawMessage) bool { return kindOf(v) == kindString }

// IsArray reports whether v is a JSON array.
func IsArray(v json.RawMessage) bool { return kindOf(v) == kindArray }
