package lint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/eventstream"
)

// maxUnits is how much of an unfinished event the client buffers, in UTF-16 units.
const maxUnits = 10 << 20

const byteOrderMark = "\xef\xbb\xbf"

// ReadSSE checks the events of a Server-Sent Events body. It frames them as the client does, which is stricter than the standard: an event
// ends with LF LF, and only lines that begin with "data:" count. first is the number of the first line. ReadSSE returns only errors of r.
func (l *Linter) ReadSSE(r io.Reader, first int) error {
	s := &frames{l: l, line: first - 1, lineEnd: "\n"}
	stream := eventstream.NewSSE(r, 3*maxUnits, eventstream.Memory{}) // UTF-8 has at most three bytes for a unit
	defer stream.Close()
	for mark := []byte(byteOrderMark); ; mark = nil {
		piece, err := stream.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("reading events: %w", err)
		}
		if err != nil {
			s.takeAll(bytes.TrimPrefix(stream.Rest().Raw, mark))
			s.end()
			return nil
		}
		s.takeAll(bytes.TrimPrefix(piece.Raw, mark))
	}
}

// frames collects the data of one frame, which the client reads as an event.
type frames struct {
	l    *Linter
	line int
	// data has the frame's data lines, and at is the number of the first one.
	data [][]byte
	at   int
	// lineEnd is the end of the last line; "" within one that is too long for the frame.
	lineEnd string
	// split reports that the frame's data ends for the standard, but not for the client. lenient makes each empty line end an event,
	// as in the standard; it is set once the client has failed.
	split, lenient bool
	// units is the size of the frame so far. full reports that units exceeds maxUnits, so that the rest of the frame is ignored.
	units int
	full  bool
}

// takeAll takes the lines of a piece of the stream.
func (s *frames) takeAll(raw []byte) {
	if s.lineEnd == "\r" && bytes.HasPrefix(raw, []byte("\n")) {
		s.lineEnd, raw = "\r\n", raw[1:]
	}
	for line, end := range eventstream.Lines(raw) {
		whole := s.lineEnd != "" // else it is the rest of a line
		if whole {
			s.line++
		}
		s.count(line)
		s.count(end)
		if whole {
			s.take(line, string(end))
		}
		s.lineEnd = string(end)
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

func (s *frames) take(line []byte, end string) {
	data, isData := bytes.CutPrefix(line, []byte("data:"))
	switch {
	case len(line) == 0 && (s.lenient || end == "\n"):
		s.end()
	case s.full:
	case len(line) == 0:
		s.split = slices.ContainsFunc(s.data, func(d []byte) bool { return len(bytes.TrimSpace(d)) > 0 }) // else it precedes the event
	case isData:
		s.misread(s.split || s.lineEnd == "\r")
		if len(s.data) == 0 {
			s.at = s.line
		}
		s.data = append(s.data, bytes.Clone(bytes.TrimPrefix(data, []byte(" "))))
	case !isField(line):
		s.misread(len(s.data) > 0 && s.lineEnd == "\r")
		s.l.add(Finding{Rule: RuleLineIgnored, Line: s.line, Message: quoted(line) + " is not an SSE field"})
	default:
		s.misread(len(s.data) > 0 && s.lineEnd == "\r")
	}
}

// misread makes the rest lenient if the client misreads a line because of the ends of the lines before it.
func (s *frames) misread(is bool) {
	if !is || s.lenient {
		return
	}
	if len(s.data) == 0 {
		s.at = s.line
	}
	s.lenient = true
	s.framing(RuleCRLF, "lines end with CR or CR LF")
	if s.split {
		s.end()
	}
}

// end checks the collected frame as an event.
func (s *frames) end() {
	data := s.data
	s.data, s.split, s.full, s.units = nil, false, false, 0
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
	name, _, _ := bytes.Cut(line, []byte(":"))
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
