package eventstream

// objectScanner finds the end of a JSON object that comes in pieces. It looks at strings, brackets, and what an opening one follows, so
// that an object that was cut off is broken where the next one begins, if not before. Whether it is well formed shows when it is decoded.
type objectScanner struct {
	open             []byte // the brackets that are open
	last             byte   // the last byte outside of strings that is no white space, a string's quote included
	inString, escape bool
}

// scanEnd is why a scan is over.
type scanEnd int

const (
	scanMore   scanEnd = iota // the object goes on after the bytes
	scanWhole                 // it has ended
	scanBroken                // it cannot go on as the bytes do
)

// next returns how many bytes of b belong to the object.
func (s *objectScanner) next(b []byte) (int, scanEnd) {
	for i, c := range b {
		if s.inString {
			switch {
			case c < ' ':
				return i, scanBroken
			case s.escape:
				s.escape = false
			case c == '\\':
				s.escape = true
			case c == '"':
				s.inString = false
			}
			continue
		}
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		case '{', '[':
			if s.last != 0 && s.last != ':' && (s.innermost() != '[' || s.last != '[' && s.last != ',') {
				return i, scanBroken
			}
			s.open = append(s.open, c)
		case '"':
			if s.last != '{' && s.last != '[' && s.last != ',' && s.last != ':' {
				return i, scanBroken
			}
			s.inString = true
		case '}', ']':
			if s.innermost() != c-2 { // as { and [ precede them in ASCII
				return i, scanBroken
			}
			if s.open = s.open[:len(s.open)-1]; len(s.open) == 0 {
				return i + 1, scanWhole
			}
		}
		s.last = c
	}
	return len(b), scanMore
}

func (s *objectScanner) innermost() byte { return s.open[len(s.open)-1] }
