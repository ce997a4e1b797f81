package agui

import (
	"encoding/json"
	"slices"
)

// Spans knows where the long objects and arrays of a checked JSON text end. Who goes down into a text level by level
// would else read what is deep in it once for each level. Nil knows nothing.
type Spans struct {
	text         json.RawMessage
	starts, ends []uint32
}

// LongSpan is how many bytes an object or array has that is worth to be known. It bounds the room that Spans take to a part of the text's, and
// what is read again, of what is shorter, to MaxDepth times so many bytes.
const LongSpan = 4096

// SpansOf reads a text; nil where nothing in it is long.
func SpansOf(text json.RawMessage) *Spans {
	if len(text) < LongSpan {
		return nil
	}
	s := &Spans{text: text}
	var open []int // places in starts
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			end, err := skipString(text, i)
			if err != nil { // cannot be: the text was checked
				return nil
			}
			i = end - 1
		case '{', '[':
			open = append(open, len(s.starts))
			s.starts, s.ends = append(s.starts, uint32(i)), append(s.ends, 0)
		case '}', ']':
			at := open[len(open)-1]
			open = open[:len(open)-1]
			if s.ends[at] = uint32(i + 1); i+1-int(s.starts[at]) < LongSpan { // so is all in it
				s.starts, s.ends = s.starts[:at], s.ends[:at]
			}
		}
	}
	return s
}

// skip is skipValue for a checked text. In is the text, or what was sliced of it.
func (s *Spans) skip(in json.RawMessage, i int) (int, error) {
	if s != nil && i < len(in) && (in[i] == '{' || in[i] == '[') {
		before := cap(s.text) - cap(in) // of the text
		if at, ok := slices.BinarySearch(s.starts, uint32(before+i)); ok {
			return int(s.ends[at]) - before, nil
		}
	}
	return skipValue(in, i, checked)
}
