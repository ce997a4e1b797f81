package cli

import (
	"fmt"
	"io"
	"os"
	"unicode/utf8"
)

// tty is a terminal as stdout. JSON keeps its contents as agents wrote them, and JSON may hold characters that steer a terminal or turn
// the direction of its text: DEL, the C1 controls and the bidirectional marks are written as \u009b and the like, which is the same string in
// JSON. The other controls are never bare in JSON, and colours need them.
type tty struct {
	*os.File
	// rest is the beginning of a character whose end has not been written yet.
	rest []byte
}

// Write implements io.Writer.
func (s *tty) Write(b []byte) (int, error) {
	text := append(s.rest, b...)
	s.rest = nil
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1 && !utf8.FullRune(text):
			s.rest, size = append([]byte(nil), text...), len(text)
		case r == utf8.RuneError && size == 1: // terminals of 8 bits take some for controls
			out = append(out, string(utf8.RuneError)...)
		case r >= 0x7F && r <= 0x9F, turnsDirection(r):
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	if _, err := s.File.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// WriteString implements io.StringWriter: that of the file would write past Write.
func (s *tty) WriteString(text string) (int, error) { return s.Write([]byte(text)) }

// ReadFrom implements io.ReaderFrom, for the same reason.
func (s *tty) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{s}, r)
}

// terminal returns stdout for a program that draws on it and makes its texts printable by itself.
func (o *output) terminal() io.Writer {
	if s, ok := o.stdout.(*tty); ok {
		return s.File
	}
	return o.stdout
}
