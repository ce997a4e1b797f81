package lint

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
)

// maxUnits is how much of an unfinished event the client buffers, in UTF-16 units.
const maxUnits = 10 << 20

const byteOrderMark = "\xef\xbb\xbf"

// ReadSSE checks the events of a Server-Sent Events body. It frames them as the client does, which is stricter than the standard: an event
// ends with LF LF, and only lines that begin with "data:" count. first is the number of the first line. ReadSSE returns only errors of r.
func (l *Linter) ReadSSE(r io.Reader, first int) error {
	s := &frames{l: l, r: bufio.NewReaderSize(r, 64<<10), line: first - 1}
	if mark, err := s.r.Peek(len(byteOrderMark)); err == nil && string(mark) == byteOrderMark {
		_, _ = s.r.Discard(len(mark)) // already buffered, so this cannot fail
	}
	for {
		line, err := s.next()
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return fmt.Errorf("reading events: %w", err)
		}
		if !last || len(line) > 0 {
			s.take(line)
		}
		if last {
			s.end()
			return nil
		}
	}
}

// frames collects the data of one frame, which the client reads as an event.
type frames struct {
	l    *Linter
	r    *bufio.Reader
	line int
	// data has the frame's data lines, and at is the number of the first one.
	data [][]byte
	at   int
	// carriage reports whether a line of CR alone follows the frame's data. lenient makes such lines end events, as in the
	// standard; it is set once the client has failed.
	carriage, lenient bool
	// units is the size of the frame so far. full reports that units exceeds maxUnits, so that the rest of the frame is ignored.
	units int
	full  bool
}

// next returns a line without its LF.
func (s *frames) next() ([]byte, error) {
	var line []byte
	s.line++
	for {
		piece, err := s.r.ReadSlice('\n')
		s.count(piece)
		if !s.full {
			line = append(line, piece...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(line, []byte("\n")), err
		}
	}
}

// count adds the UTF-16 units of piece to units.
func (s *frames) count(piece []byte) {
	for _, c := range piece {
		if c&0xC0 != 0x80 { // the first byte of a character
			s.units++
		}
		if c >= 0xF0 { // the first byte of a character that takes two units
			s.units++
		}
	}
	if s.units <= maxUnits || s.full {
		return
	}
	s.full = true
	if len(s.data) == 0 {
		s.at = s.line
	}
	s.data = nil
	s.l.tally.Events++
	s.l.line, s.l.eventType = s.at, ""
	s.l.find(RuleFrameTooLarge, "", "the event is larger than 10 MiB")
}

func (s *frames) take(line []byte) {
	data, isData := bytes.CutPrefix(line, []byte("data:"))
	switch {
	case len(line) == 0, s.lenient && string(line) == "\r":
		s.end()
	case s.full:
	case string(line) == "\r":
		s.carriage = slices.ContainsFunc(s.data, func(d []byte) bool { return len(bytes.TrimSpace(d)) > 0 }) // else it precedes the event
	case isData:
		if s.carriage {
			s.lenient = true
			s.framing(RuleCRLF, "lines end with CR LF")
			s.end()
		}
		if len(s.data) == 0 {
			s.at = s.line
		}
		s.data = append(s.data, bytes.TrimPrefix(data, []byte(" ")))
	case !isField(line):
		s.l.add(Finding{Rule: RuleLineIgnored, Line: s.line, Message: quoted(line) + " is not an SSE field"})
	}
}

// end checks the collected frame as an event.
func (s *frames) end() {
	data := s.data
	s.data, s.carriage, s.full, s.units = nil, false, false, 0
	if len(data) == 0 {
		return
	}
	whole := bytes.Join(data, []byte("\n"))
	if len(data) == 1 || isJSON(whole) || !isJSON(data[0]) {
		s.l.Event(whole, s.at)
		return
	}
	s.framing(RuleNotSeparated, "no empty line separates two events")
	for i, d := range data {
		s.l.Event(d, s.at+i)
	}
}

// framing reports a finding about the frame of the next event.
func (s *frames) framing(rule, message string) {
	s.l.add(Finding{Rule: rule, Line: s.at, Event: s.l.tally.Events + 1, Message: message})
}

// isField reports whether a line is a comment, or an SSE field other than data.
func isField(line []byte) bool {
	name, _, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\r")), []byte(":"))
	switch string(name) {
	case "", "event", "id", "retry":
		return true
	}
	return false
}

// isJSON reports whether the client parses a text as JSON.
func isJSON(b []byte) bool {
	return agui.CheckDepth(bytes.ToValidUTF8(b, []byte("\ufffd")), deepest) == nil
}
