package agui

import (
	"bytes"
	"encoding/json"
	"slices"
)

// Spans has the ends of the long objects and arrays of a checked JSON text. Without them, reading a text level by level scans
// deeply nested values once for each level. A nil *Spans is valid and has none.
type Spans struct {
	text         json.RawMessage
	starts, ends []uint32
}

// LongSpan is the minimum size in bytes of an object or array in Spans. It bounds the memory of Spans to a fraction of the
// text, and bounds repeated scans of shorter values to MaxDepth times LongSpan bytes.
const LongSpan = 4096

// SpansOf returns the spans of a checked text. It returns nil if the text is shorter than LongSpan.
func SpansOf(text json.RawMessage) *Spans {
	if len(text) < LongSpan {
		return nil
	}
	s := &Spans{text: text}
	var open []int // indexes in starts
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			n := bytes.IndexByte(text[i+1:], '"')
			if n > 0 && text[i+n] == '\\' {
				n, _ = skipString(text, i)
				n -= i + 2
			}
			i += 1 + n
		case '{', '[':
			open = append(open, len(s.starts))
			s.starts, s.ends = append(s.starts, uint32(i)), append(s.ends, 0)
		case '}', ']':
			at := open[len(open)-1]
			open = open[:len(open)-1]
			if s.ends[at] = uint32(i + 1); i+1-int(s.starts[at]) < LongSpan { // so is everything in it
				s.starts, s.ends = s.starts[:at], s.ends[:at]
			}
		}
	}
	return s
}

// skip is skipValue for a checked text. The argument in is the text of s or a slice of it.
func (s *Spans) skip(in json.RawMessage, i int) (int, error) {
	if s != nil && i < len(in) && (in[i] == '{' || in[i] == '[') {
		before := cap(s.text) - cap(in) // the offset of in within s.text
		if at, ok := slices.BinarySearch(s.starts, uint32(before+i)); ok {
			return int(s.ends[at]) - before, nil
		}
	}
	return skipValue(in, i, checked)
}
