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

// mostUnits is how many UTF-16 units the client holds of an event that has not ended.
const mostUnits = 10 << 20

const byteOrderMark = "\xef\xbb\xbf"

// ReadSSE takes the events of a body of Server-Sent Events as the client frames them, which is not all that the standard
// allows: an event ends with LF LF, and nothing but lines that begin with "data:" counts. First is the number of the first
// line. The error is one of reading.
func (l *Linter) ReadSSE(r io.Reader, first int) error {
	s := &frames{l: l, r: bufio.NewReaderSize(r, 64<<10), line: first - 1}
	if mark, err := s.r.Peek(len(byteOrderMark)); err == nil && string(mark) == byteOrderMark {
		_, _ = s.r.Discard(len(mark)) // it is buffered
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

// frames collects the data of one frame, which the client takes for an event.
type frames struct {
	l    *Linter
	r    *bufio.Reader
	line int
	// data are the frame's lines of data, and at the line of the first.
	data [][]byte
	at   int
	// carriage says that the frame has a line of CR alone behind its data, and lenient that such lines end events, as
	// the standard has it: the client has failed by then.
	carriage, lenient bool
	// units is how much the client holds, and full says that it is too much: the rest of the frame is left out.
	units int
	full  bool
}

// next returns a line without its LF.
func (s *frames) next() ([]byte, error) {
	var line []byte
	s.line++
	for {
		piece, err := s.r.ReadSlice('\n')
		s.hold(piece)
		if !s.full {
			line = append(line, piece...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(line, []byte("\n")), err
		}
	}
}

// hold counts what the client holds.
func (s *frames) hold(piece []byte) {
	for _, c := range piece {
		if c&0xC0 != 0x80 { // the first byte of a character
			s.units++
		}
		if c >= 0xF0 { // of one that has two units
			s.units++
		}
	}
	if s.units <= mostUnits || s.full {
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
		s.carriage = slices.ContainsFunc(s.data, func(d []byte) bool { return len(bytes.TrimSpace(d)) > 0 }) // else it is space before the event
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

// end takes the frame for an event.
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

// framing makes a finding about the frame, which begins with the next event.
func (s *frames) framing(rule, message string) {
	s.l.add(Finding{Rule: rule, Line: s.at, Event: s.l.tally.Events + 1, Message: message})
}

// isField reports whether a line is a comment, or a field of SSE that is not data.
func isField(line []byte) bool {
	name, _, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\r")), []byte(":"))
	switch string(name) {
	case "", "event", "id", "retry":
		return true
	}
	return false
}

// isJSON reports whether a text is JSON to the client.
func isJSON(b []byte) bool {
	return agui.CheckDepth(bytes.ToValidUTF8(b, []byte("\ufffd")), deepest) == nil
}
