package eventstream

// objectScanner finds the end of a JSON object that arrives in parts. It checks only strings, brackets and the
// character before an opening bracket or quote. It thus detects a cut-off object no later than at the start of the next
// one. Decoding checks the rest of the syntax.
type objectScanner struct {
	open             []byte // open brackets
	last             byte   // the last byte outside strings (or quote) that is not white space
	inString, escape bool
}

// scanEnd is why a scan stops.
type scanEnd int

const (
	scanMore   scanEnd = iota // the object needs more bytes
	scanWhole                 // the object is complete
	scanBroken                // the bytes cannot continue the object
)

// next returns how many bytes of b belong to the object, and why it stopped.
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
			if s.innermost() != c-2 { // in ASCII, '{' is '}'-2 and '[' is ']'-2
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
