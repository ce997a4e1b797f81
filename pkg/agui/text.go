package agui

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// Text is the inside of a JSON string, still escaped. Deltas are joined in this form because AG-UI's strings are UTF-16: two deltas
// may each carry half a surrogate pair, and joining the escapes makes one character. Two Go strings would have U+FFFD twice.
type Text []byte

// TextOf returns the inside of a checked JSON string.
func TextOf(v json.RawMessage) Text { return Text(v[1 : len(v)-1]) }

// String decodes the text. A lone surrogate becomes its three-byte form (WTF-8), so that different texts stay
// different.
func (t Text) String() string { return string(t.Bytes()) }

// Bytes is like String, and aliases the text if it has no escapes.
func (t Text) Bytes() []byte {
	if bytes.IndexByte(t, '\\') < 0 {
		return t
	}
	return appendDecoded(make([]byte, 0, len(t)), t)
}

// AppendString appends what String returns.
func (t Text) AppendString(dst []byte) []byte { return appendDecoded(dst, t) }

// Equal reports whether both decode to the same string. The cost is proportional to the shorter one.
func (t Text) Equal(o Text) bool {
	const longest = len(`\u0041`) // the longest escape of one character
	if len(t) > longest*len(o) || len(o) > longest*len(t) {
		return false
	}
	if bytes.IndexByte(t, '\\') < 0 && bytes.IndexByte(o, '\\') < 0 {
		return bytes.Equal(t, o)
	}
	return t.String() == o.String()
}

// AppendJSON appends the text as a JSON string in normal form: it escapes only what JSON requires, joins surrogate pairs, and keeps
// lone surrogates as \u escapes. The result does not depend on how the text was split into deltas.
func (t Text) AppendJSON(dst []byte) []byte {
	return append(t.AppendNormal(append(dst, '"')), '"')
}

// AppendNormal is AppendJSON without the quotes. Texts that are appended one after another give what the whole text gives, unless one
// ends and the next begins with half a surrogate pair.
func (t Text) AppendNormal(dst []byte) []byte {
	for {
		i := bytes.IndexByte(t, '\\')
		if i < 0 {
			return append(dst, t...)
		}
		dst = append(dst, t[:i]...)
		switch c := t[i+1]; c {
		case 'u':
			r, n := unicodeEscape(t[i:])
			var room [utf8.UTFMax]byte
			dst = appendQuoted(dst, appendWTF8(room[:0], r))
			t = t[i+n:]
		case '/':
			dst = append(dst, c)
			t = t[i+2:]
		default:
			dst = append(dst, '\\', c)
			t = t[i+2:]
		}
	}
}

// BeginsInPair reports whether the text begins with the second half of a surrogate pair, escaped.
func (t Text) BeginsInPair() bool {
	if len(t) < 6 || t[0] != '\\' || t[1] != 'u' {
		return false
	}
	r, _ := hex4(t[2:])
	return r >= 0xDC00 && r < 0xE000
}

// AppendString appends s as a JSON string in the same normal form.
func AppendString(dst []byte, s string) []byte {
	return append(appendQuoted(append(dst, '"'), s), '"')
}

// unquote decodes a checked JSON string with its quotes.
func unquote(v []byte) string { return TextOf(v).String() }

func appendDecoded(dst, t []byte) []byte {
	for i := 0; i < len(t); {
		j := bytes.IndexByte(t[i:], '\\')
		if j < 0 {
			return append(dst, t[i:]...)
		}
		dst = append(dst, t[i:i+j]...)
		i += j
		switch c := t[i+1]; c {
		case 'u':
			r, n := unicodeEscape(t[i:])
			i += n
			dst = appendWTF8(dst, r)
		default:
			dst = append(dst, unescape[c])
			i += 2
		}
	}
	return dst
}

// unicodeEscape reads the \u escape, or the two of a surrogate pair, with which t begins, and returns its length.
func unicodeEscape(t []byte) (r rune, n int) {
	const one = len(`\u0041`)
	r, _ = hex4(t[2:])
	if r >= 0xD800 && r < 0xDC00 && Text(t[one:]).BeginsInPair() {
		lo, _ := hex4(t[one+2:])
		return 0x10000 + (r-0xD800)<<10 + (lo - 0xDC00), 2 * one
	}
	return r, one
}

var unescape = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// appendWTF8 appends r as UTF-8, surrogates in their generalised three-byte form.
func appendWTF8(dst []byte, r rune) []byte {
	if r >= 0xD800 && r < 0xE000 {
		return append(dst, 0xED, byte(0x80|(r>>6)&0x3F), byte(0x80|r&0x3F))
	}
	return utf8.AppendRune(dst, r)
}

var shortEscapes = [0x20]byte{'\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't'}

const hexDigits = "0123456789abcdef"

func appendQuoted[T string | []byte](dst []byte, s T) []byte {
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			dst = append(append(dst, s[from:i]...), '\\', c)
			i++
			from = i
		case c < 0x20:
			dst = append(dst, s[from:i]...)
			if e := shortEscapes[c]; e != 0 {
				dst = append(dst, '\\', e)
			} else {
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			from = i
		case c == 0xED && i+2 < len(s) && s[i+1] >= 0xA0: // a lone surrogate in WTF-8
			dst = append(dst, s[from:i]...)
			r := 0xD000 | rune(s[i+1]&0x3F)<<6 | rune(s[i+2]&0x3F)
			dst = append(dst, '\\', 'u', hexDigits[r>>12], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
			i += 3
			from = i
		default:
			i++
		}
	}
	return append(dst, s[from:]...)
}

// hex4 reads four hexadecimal digits.
func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
