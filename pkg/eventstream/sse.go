package eventstream

import (
	"bytes"
	"errors"
	"io"
	"iter"
)

// sseBuffer is the size of NewSSE's first buffer, in bytes. A proxy has one for each stream.
const sseBuffer = 16 << 10

// HeadBytes is how many bytes SSE keeps of the data of an oversized event.
const HeadBytes = 1 << 10

// Piece is a part of a stream of server-sent events. Raw and Data are valid until the next call of Next.
type Piece struct {
	// Raw contains the original bytes. The concatenated Raw of all pieces is the stream.
	Raw []byte
	// Data is the data of the event that ends in this piece: the values of its data lines, joined by line feeds (WHATWG
	// HTML, 9.2). It is nil if no event ends here (comments) or the event has no data.
	Data []byte
	// Line is the line, from 1, on which the data begins; without data, the line on which the piece begins.
	Line int64
	// Partial means that Raw ends inside an event that is too large. Over means that Raw is the end of such an event. Head
	// then contains the first HeadBytes of its data.
	Partial, Over bool
	// Err is the error of Memory.Acquire for a Partial or Over piece. If it is set, the event may be within the limit.
	Err  error
	Head []byte
}

// SSE reads server-sent events in pieces. A piece is a complete event with the lines before it, comments that arrived
// before the next event, or a part of an oversized event, which passes through unbuffered. Lines end with LF, CRLF or
// CR.
//
// A caller that forwards only pieces that are not Partial never forwards half an event.
type SSE struct {
	buffer
	// Offsets in the rest: line is the start of the current line; the scan for its end continues at scan.
	line, scan int
	// number is the number of the current line, from 1; top is the number of the piece's first line.
	number, top int64

	// The current event. size is the length of its data lines, each with a line end; 0 or 1 means no data.
	begun bool // the event has a line that is not a comment
	size  int
	lines int // number of data lines
	// For the event's first data line: from is its offset in the rest, at its line number, value the range of its value.
	from  int
	at    int64
	value [2]int

	over     bool // the event is too large and passes through
	noMemory error
	head     []byte // first bytes of the event's data
	cur      []byte // first bytes of the event's current line

	skipLF bool // the last line ended with CR; a LF directly after it belongs to the same line end
	later  bool // not the first line: only the first may have a byte order mark
	joined []byte
}

// NewSSE returns a reader of events with at most limit bytes of data. The other lines of an event may add a few KiB.
func NewSSE(r io.Reader, limit int, memory Memory) *SSE {
	return newSSE(newBuffer(r, limit, sseBuffer, memory))
}

func newSSE(b buffer) *SSE { return &SSE{buffer: b, number: 1, top: 1} }

// Next returns the next piece. It reads only if the buffer contains no complete piece. At the end of the stream, it
// returns the underlying reader's error, such as io.EOF. Rest then returns the remaining bytes.
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

// Rest returns the remaining bytes after Next has failed. If the stream is complete and they are an event that lacks
// only its empty line, Data contains the event's data, or Over is set if the event is too large.
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

// firstLine returns Piece.Line for the current piece.
func (s *SSE) firstLine() int64 {
	if s.lines > 0 {
		return s.at
	}
	return s.top
}

// piece returns the next piece if the rest contains one.
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
		// The bytes of an oversized event are passed on as they arrive.
		s.passing(rest[s.line:s.scan])
		return s.partial(s.scan), true
	case !s.over && !s.begun && s.line > 0:
		// Return complete comments at once: they keep connections alive, so they must not wait for an event.
		p := Piece{Raw: s.taken(s.line), Line: s.top}
		s.top = s.number
		return p, true
	}
	return Piece{}, false
}

// taken takes n bytes from the rest and adjusts the offsets.
func (s *SSE) taken(n int) []byte {
	s.line, s.scan = max(0, s.line-n), max(0, s.scan-n)
	return s.take(n)
}

// partial returns n bytes of an event that passes through.
func (s *SSE) partial(n int) Piece {
	s.line, s.scan = n, n
	return Piece{Raw: s.taken(n), Partial: true, Err: s.noMemory, Line: s.firstLine()}
}

// field processes a non-empty line of the rest.
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

// passing processes a part of a line of an event that passes through.
func (s *SSE) passing(part []byte) {
	// Keep enough of the line for the head, and to recognise an empty line.
	s.cur = append(s.cur, part[:min(len(part), maxCur-len(s.cur))]...)
}

// passed processes the end of a line of an event that passes through.
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

// addHead appends the value of a data line and a line feed to the head.
func (s *SSE) addHead(value []byte) {
	s.head = append(s.head, value[:min(len(value), HeadBytes-len(s.head))]...)
	if len(s.head) < HeadBytes {
		s.head = append(s.head, '\n')
	}
}

// mark returns the byte order mark at the start of a line, or nil.
func mark(line []byte) []byte {
	if bytes.HasPrefix(line, []byte(byteOrderMark)) {
		return line[:len(byteOrderMark)]
	}
	return nil
}

// dataOf returns the value of a data line.
func dataOf(line []byte) ([]byte, bool) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	if string(name) != "data" {
		return nil, false
	}
	return bytes.TrimPrefix(value, []byte(" ")), true
}

// finish returns the piece of an event at its empty line.
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

// data returns the data of the event that ends at the offset end of the rest; nil if the data is empty or missing.
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

// Lines yields the lines of a piece, each with its end: LF, CRLF or CR. The last one may lack it.
func Lines(raw []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(line, end []byte) bool) {
		for len(raw) > 0 {
			n, ok := lineEnd(raw)
			after := n + 1
			switch {
			case !ok:
				n, after = len(raw), len(raw)
			case bytes.HasPrefix(raw[n:], []byte("\r\n")):
				after++
			}
			if !yield(raw[:n], raw[n:after]) {
				return
			}
			raw = raw[after:]
		}
	}
}

// Fields yields the name and value of each line of a piece. The name of a comment is empty.
func Fields(raw []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for line := range Lines(raw) {
			name, value, _ := bytes.Cut(line, []byte(":"))
			if len(line) > 0 && !yield(string(name), bytes.TrimPrefix(value, []byte(" "))) {
				return
			}
		}
	}
}

// pass starts to pass the current event through unbuffered. It keeps the first bytes of the data.
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

// lineEnd returns the index of the first LF or CR.
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
