package cli

import (
	"fmt"
	"io"
	"os"
	"unicode/utf8"
)

// tty is a terminal as stdout. JSON from agents may contain raw characters that control a terminal or change the direction of
// text. tty writes DEL, C1 controls and bidirectional marks as escapes such as \u009b, which mean the same in JSON. It passes C0
// controls through: valid JSON has none, and colours need them.
type tty struct {
	file *os.File
	// partial is the beginning of a character whose remaining bytes have not been written yet.
	partial []byte
}

// Write implements io.Writer.
func (s *tty) Write(b []byte) (int, error) {
	text := append(s.partial, b...)
	s.partial = nil
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1 && !utf8.FullRune(text):
			s.partial, size = append([]byte(nil), text...), len(text)
		case r == utf8.RuneError && size == 1: // 8-bit terminals interpret some invalid bytes as controls
			out = append(out, string(utf8.RuneError)...)
		case r >= 0x7F && r <= 0x9F, turnsDirection(r):
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	if _, err := s.file.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Fd returns the terminal's file descriptor.
func (s *tty) Fd() uintptr { return s.file.Fd() }

// terminal returns stdout without the filter of tty. It is for a program that draws with control sequences and filters its texts itself.
func (o *output) terminal() io.Writer {
	if s, ok := o.stdout.(*tty); ok {
		return s.file
	}
	return o.stdout
}
