package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Diff compares two conversations as JSON values: the order of members aside, numbers as numbers
// (the client's are JavaScript's, 64-bit floats), strings as UTF-16, so that half a surrogate pair is
// equal to itself only. It returns the first difference as text, or "" where there is none.
func Diff(want, got Conversation) string {
	if d := DiffJSON("messages", want.Messages, got.Messages); d != "" {
		return d
	}
	return DiffJSON("state", want.State, got.State)
}

// DiffJSON is Diff for one value; name stands at the start of the text.
func DiffJSON(name string, want, got json.RawMessage) string {
	w, err := Decode(want)
	if err != nil {
		return fmt.Sprintf("%s: the wanted value: %v", name, err)
	}
	g, err := Decode(got)
	if err != nil {
		return fmt.Sprintf("%s: %v", name, err)
	}
	return diffValue(name, w, g)
}

// Decode reads a value as Diff does: numbers as they are written (json.Number), half a surrogate pair as Half and its
// four digits.
func Decode(b json.RawMessage) (any, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(MarkHalves(b)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("decoding %.60q: %w", b, err)
	}
	return v, nil
}

// Half marks, in a Go string, a UTF-16 unit that is half a surrogate pair: its four digits in upper case follow.
const Half = "\U0010F000"

func diffValue(path string, want, got any) string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return differ(path, want, got)
		}
		for _, k := range slices.Sorted(maps.Keys(w)) {
			v, ok := g[k]
			if !ok {
				return fmt.Sprintf("%s/%s: want %s, got no such member", path, k, show(w[k]))
			}
			if d := diffValue(path+"/"+k, w[k], v); d != "" {
				return d
			}
		}
		for _, k := range slices.Sorted(maps.Keys(g)) {
			if _, ok := w[k]; !ok {
				return fmt.Sprintf("%s/%s: want no such member, got %s", path, k, show(g[k]))
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok {
			return differ(path, want, got)
		}
		for i := range min(len(w), len(g)) {
			if d := diffValue(path+"/"+strconv.Itoa(i), w[i], g[i]); d != "" {
				return d
			}
		}
		if len(w) != len(g) {
			return fmt.Sprintf("%s: want %d elements, got %d", path, len(w), len(g))
		}
		return ""
	}
	if w, ok := want.(json.Number); ok {
		if g, ok := got.(json.Number); !ok || double(w) != double(g) {
			return differ(path, want, got)
		}
		return ""
	}
	if want != got { // a string, boolean or null, of which got may have another kind
		return differ(path, want, got)
	}
	return ""
}

// double is the number as JavaScript has it.
func double(n json.Number) float64 {
	f, _ := strconv.ParseFloat(string(n), 64) // the error is of range, and f is then the infinity
	return f
}

func differ(path string, want, got any) string {
	return fmt.Sprintf("%s: want %s, got %s", path, show(want), show(got))
}

func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(b) > 200 {
		return string(b[:200]) + "…"
	}
	return string(b)
}

// MarkHalves replaces each \u escape that is half a surrogate pair by Half and its
// four digits. encoding/json would make every such half the same U+FFFD.
func MarkHalves(b []byte) []byte {
	if !bytes.Contains(b, []byte(`\u`)) {
		return b
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		if b[i] != '\\' || i+1 == len(b) {
			out = append(out, b[i])
			i++
			continue
		}
		r, ok := escape(b[i:])
		switch {
		case !ok: // a short escape, such as \n or \\
			out = append(out, b[i:i+2]...)
			i += 2
		case !utf16.IsSurrogate(r):
			out = append(out, b[i:i+6]...)
			i += 6
		default:
			if low, ok := escape(b[i+6:]); ok && utf16.DecodeRune(r, low) != utf8.RuneError {
				out = append(out, b[i:i+12]...)
				i += 12
				continue
			}
			out = fmt.Appendf(out, Half+"%04X", r)
			i += 6
		}
	}
	return out
}

// escape reads \uXXXX at the start of b.
func escape(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(n), err == nil
}
