package eventstream

import (
	"bytes"
	"errors"
	"io"
	"iter"
)

// sseBuffer is the first buffer of NewSSE. A proxy holds one for each stream.
const sseBuffer = 16 << 10

// HeadBytes is how much of an event's data is kept that is too large.
const HeadBytes = 1 << 10

// Piece is a part of a stream of server-sent events. Raw and Data are valid until the next call of Next.
type Piece struct {
	// Raw are the bytes as they came. The Raw of all pieces, one after another, is the stream.
	Raw []byte
	// Data is the data of the event that the piece ends: its data lines, joined by line feeds (WHATWG HTML, 9.2). It is nil if the piece ends
	// no event: comments, or an event without data.
	Data []byte
	// Line is where the data begins, or the piece if it has none, from 1.
	Line int64
	// Partial: Raw ends inside an event that is too large. Over: Raw is the end of such an event, of whose data only Head was kept, at most
	// HeadBytes.
	Partial, Over bool
	// Err is why there was no memory for the event, of a piece that is Partial or Over. The event may be within the limit.
	Err  error
	Head []byte
}

// SSE reads server-sent events in pieces. A piece is a whole event with the lines before it, or comments that came before the next event
// began, or a part of an event that is too large, which passes through without being held. Lines end with LF, CRLF or CR.
//
// A caller that forwards whole pieces, and none that is Partial, never forwards half an event.
type SSE struct {
	buffer
	// Offsets in the rest: line is the start of the line that is being read, and there is no line end before scan.
	line, scan int
	// number is that of the line that is being read, from 1, and top that of the first line of the piece.
	number, top int64

	// The event that is being read. size is that of its data lines, each with a line end: 0 or 1 is no data.
	begun bool // it has a line that is no comment
	size  int
	lines int // of data
	// from is where its first data line begins in the rest, on line at, and value is its value.
	from  int
	at    int64
	value [2]int

	over     bool // the event is passed through
	noMemory error
	head     []byte // of its data
	cur      []byte // of the line in it that has no end yet

	skipLF bool // the last line ended with CR: LF after it is the same end
	later  bool // a line was read: only the first may have a byte order mark
	joined []byte
}

// NewSSE returns a reader of events with at most limit bytes of data. The lines around the data may have a few KiB more.
func NewSSE(r io.Reader, limit int, memory Memory) *SSE {
	return newSSE(newBuffer(r, limit, sseBuffer, memory))
}

func newSSE(b buffer) *SSE { return &SSE{buffer: b, number: 1, top: 1} }

// Next returns the next piece. It reads only if the buffer holds no piece. At the end of the stream it returns the error of the reader
// below, io.EOF for a whole stream; Rest then has what was begun.
func (s *SSE) Next() (Piece, error) {
	for {
		if p, ok := s.piece(); ok {
			return p, nil
		}
		switch err := s.fill(); {
		case err == nil:
		case s.err != nil:
			return Piece{}, s.err
		default:
			if !errors.Is(err, errTooLarge) {
				s.noMemory = err
			}
			s.pass()
			return s.partial(len(s.rest())), nil
		}
		if cap(s.joined) > s.base {
			s.joined = nil
		}
	}
}

// Rest returns, after Next has failed, the bytes that make no piece, and the data of an event that lacks only its empty line; Over
// if that is too large.
func (s *SSE) Rest() Piece {
	p := Piece{Raw: s.rest(), Partial: s.over, Line: s.top}
	if s.over || !errors.Is(s.err, io.EOF) {
		return p
	}
	if s.line < len(p.Raw) {
		s.field(s.line, len(p.Raw))
	}
	p.Line = s.firstLine()
	if p.Over = s.size-1 > s.limit; !p.Over {
		p.Data = s.data(len(p.Raw))
	}
	return p
}

// Pending reports whether an event has begun that was not returned.
func (s *SSE) Pending() bool { return s.over || len(s.rest()) > 0 }

// firstLine is the line of the piece that is being read.
func (s *SSE) firstLine() int64 {
	if s.lines > 0 {
		return s.at
	}
	return s.top
}

// piece looks for a piece in the rest.
func (s *SSE) piece() (Piece, bool) {
	rest := s.rest()
	for s.scan < len(rest) {
		if s.skipLF {
			s.skipLF = false
			if rest[s.scan] == '\n' {
				s.scan++
				s.line = s.scan
				continue
			}
		}
		end, ok := lineEnd(rest[s.scan:])
		if !ok {
			s.scan = len(rest)
			break
		}
		end += s.scan
		first := s.line
		s.scan = end + 1
		if rest[end] == '\r' {
			if s.scan < len(rest) && rest[s.scan] == '\n' {
				s.scan++
			} else {
				s.skipLF = s.scan == len(rest)
			}
		}
		s.line = s.scan
		switch {
		case first == end && len(s.cur) == 0:
			return s.finish(), true
		case s.over:
			s.passing(rest[first:end])
			s.passed()
		default:
			s.field(first, end)
		}
		s.number++
	}
	switch {
	case s.over && s.scan > 0:
		// What belongs to the event goes on as it comes.
		s.passing(rest[s.line:s.scan])
		return s.partial(s.scan), true
	case !s.over && !s.begun && s.line > 0:
		// Whole comments: they keep connections up, so they must not wait for an event.
		p := Piece{Raw: s.taken(s.line), Line: s.top}
		s.top = s.number
		return p, true
	}
	return Piece{}, false
}

// taken takes n bytes of the rest.
func (s *SSE) taken(n int) []byte {
	s.line, s.scan = max(0, s.line-n), max(0, s.scan-n)
	return s.take(n)
}

// partial takes n bytes of an event that is passed through.
func (s *SSE) partial(n int) Piece {
	s.line, s.scan = n, n
	return Piece{Raw: s.taken(n), Partial: true, Err: s.noMemory, Line: s.firstLine()}
}

// field takes a line of the rest that is not empty.
func (s *SSE) field(first, end int) {
	rest := s.rest()
	if !s.later {
		first += len(mark(rest[first:end]))
	}
	s.later = true
	line := rest[first:end]
	if len(line) == 0 || line[0] == ':' {
		return
	}
	s.begun = true
	value, ok := dataOf(line)
	if !ok {
		return
	}
	if s.lines == 0 {
		s.from, s.value, s.at = first, [2]int{end - len(value), end}, s.number
	}
	s.lines++
	s.size += len(value) + 1
}

// passing takes a part of a line of an event that is passed through.
func (s *SSE) passing(part []byte) {
	// Keep enough to recognise its end, and its head.
	s.cur = append(s.cur, part[:min(len(part), maxCur-len(s.cur))]...)
}

// passed takes such a line at its end.
func (s *SSE) passed() {
	line := s.cur
	if !s.later {
		line = line[len(mark(line)):]
	}
	s.later = true
	if value, ok := dataOf(line); ok {
		if s.lines == 0 {
			s.lines, s.at = 1, s.number
		}
		s.addHead(value)
		s.size += len(value) + 1
	}
	s.cur = s.cur[:0]
}

const maxCur = len(byteOrderMark) + len("data: ") + HeadBytes

// addHead takes the value of a data line, with a line end.
func (s *SSE) addHead(value []byte) {
	s.head = append(s.head, value[:min(len(value), HeadBytes-len(s.head))]...)
	if len(s.head) < HeadBytes {
		s.head = append(s.head, '\n')
	}
}

// mark returns the byte order mark that a line begins with.
func mark(line []byte) []byte {
	if bytes.HasPrefix(line, []byte(byteOrderMark)) {
		return line[:len(byteOrderMark)]
	}
	return nil
}

// dataOf returns the value of a line that is one of data.
func dataOf(line []byte) ([]byte, bool) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	if string(name) != "data" {
		return nil, false
	}
	return bytes.TrimPrefix(value, []byte(" ")), true
}

// finish ends an event at its empty line.
func (s *SSE) finish() Piece {
	p := Piece{Line: s.firstLine()}
	switch {
	case s.over:
		if s.size > 1 {
			p.Over, p.Err, p.Head = true, s.noMemory, bytes.TrimSuffix(s.head, []byte("\n"))
		}
	case s.size-1 > s.limit:
		data := s.data(s.scan)
		p.Over, p.Head = true, data[:min(len(data), HeadBytes)]
	default:
		p.Data = s.data(s.scan)
	}
	p.Raw = s.taken(s.scan)
	s.number++
	s.top = s.number
	s.begun, s.size, s.lines, s.later = false, 0, 0, true
	s.over, s.noMemory = false, nil
	return p
}

// data returns the data of the event that ends before end in the rest, nil if it has none. Empty data counts as none.
func (s *SSE) data(end int) []byte {
	rest := s.rest()
	switch {
	case s.size <= 1:
		return nil
	case s.lines == 1:
		return rest[s.value[0]:s.value[1]]
	}
	if cap(s.joined) < s.size {
		s.joined = make([]byte, 0, s.size)
	}
	s.joined = s.joined[:0]
	for name, value := range Fields(rest[s.from:end]) {
		if name == "data" {
			s.joined = append(append(s.joined, value...), '\n')
		}
	}
	return s.joined[:len(s.joined)-1]
}

// Fields yields the fields of the lines of a piece. Of a comment the name is empty.
func Fields(raw []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for len(raw) > 0 {
			line, rest := raw, []byte(nil)
			if end, ok := lineEnd(raw); ok {
				line, rest = raw[:end], raw[end+1:]
			}
			name, value, _ := bytes.Cut(line, []byte(":"))
			if len(line) > 0 && !yield(string(name), bytes.TrimPrefix(value, []byte(" "))) {
				return
			}
			raw = rest
		}
	}
}

// pass begins to pass the event through: its head is kept.
func (s *SSE) pass() {
	rest := s.rest()
	s.over, s.head, s.cur = true, s.head[:0], s.cur[:0]
	if s.lines > 0 {
		for name, value := range Fields(rest[s.from:s.line]) {
			if name == "data" {
				s.addHead(value)
			}
		}
	}
	s.passing(rest[s.line:])
}

// lineEnd finds the first LF or CR.
func lineEnd(b []byte) (int, bool) {
	lf := bytes.IndexByte(b, '\n')
	until := lf
	if lf < 0 {
		until = len(b)
	}
	if cr := bytes.IndexByte(b[:until], '\r'); cr >= 0 {
		return cr, true
	}
	return lf, lf >= 0
}
