package sse

import (
	"bytes"
	"errors"
	"io"
	"iter"
)

// baseBuffer is what a stream holds as long as its events are small. It is not counted by Acquire.
const baseBuffer = 16 << 10

// Piece is a part of a stream. Raw and Data are valid until the next call of Next.
type Piece struct {
	// Raw are the bytes as they came. The Raw of all pieces, one behind another, is the stream.
	Raw []byte
	// Data is what an event says: its data lines, joined by line feeds (WHATWG HTML, 9.2). It is nil
	// where the piece ends no event: comments, or an event without data.
	Data []byte
	// Partial says that Raw ends inside an event, which is over the limit. Over says that Raw is the
	// last of such an event; its data was not kept, but for the first bytes: Head has at most HeadBytes of them. NoRoom says with
	// Over that there was no memory for the event, which may be within the limit.
	Partial, Over, NoRoom bool
	Head                  []byte
}

// HeadBytes is how much of an event's data is kept that is over the limit.
const HeadBytes = 1 << 10

// Reader reads a stream in pieces. A piece is a whole event with the lines before it, or comments
// that came before the next event began, or a part of an event over the limit, which passes
// through without being held. Lines end with LF, CRLF or CR.
//
// A caller that forwards whole pieces, and none that is Partial, never forwards half an event.
type Reader struct {
	r io.Reader
	// limit is the greatest event; what stands round its data (field names, comments) may be as much again as frame.
	limit int
	// acquire asks for n more bytes of memory, and release gives them back.
	acquire func(n int) bool
	release func(n int)
	held    int

	base  int // bytes of a small buffer
	buf   []byte
	start int // of what was not handed out
	line  int // start of the line that is being read
	scan  int // up to here there is no line end
	err   error

	// The event that is being read. size is of its data lines, each with a line end: 0 or 1 is no data.
	begun bool // it has a line that is no comment
	size  int
	lines int // of data
	// from is where the first data line begins in buf, and value is its value, of which there may be no other.
	from  int
	value [2]int

	over   bool   // the event is being passed through
	noRoom bool   // …because there was no memory for it
	head   []byte // …with data that begins like this
	cur    []byte // …and so begins the line in it whose end has not come

	skipLF bool // the last line ended with CR: an LF behind it is the same end
	later  bool // a line was read: only the first may have a byte order mark
	joined []byte
}

// frame is what an event may hold beside its data.
const frame = 4 << 10

// NewReader reads events of at most limit bytes of data from r. Before it holds more than a small
// buffer it asks acquire for the bytes, and says with release when it needs them no more; an event for
// which there is no memory is treated as over the limit. Both may be nil: there is always memory.
func NewReader(r io.Reader, limit int, acquire func(n int) bool, release func(n int)) *Reader {
	if acquire == nil {
		acquire, release = func(int) bool { return true }, func(int) {}
	}
	return &Reader{r: r, limit: limit, acquire: acquire, release: release, base: baseBuffer, buf: make([]byte, 0, baseBuffer)}
}

// Close gives the memory back. The reader below is not closed.
func (r *Reader) Close() {
	r.release(r.held)
	r.held = 0
	r.buf = nil
	r.start, r.line, r.scan = 0, 0, 0
}

// Next returns the next piece. It waits for bytes only where none that came makes a piece. At the end
// of the stream it returns the error of the reader below, io.EOF for a whole stream; Rest then has what
// was begun.
func (r *Reader) Next() (Piece, error) {
	for {
		if p, ok := r.take(); ok {
			return p, nil
		}
		if r.err != nil {
			return Piece{}, r.err
		}
		if p, ok := r.fill(); ok {
			return p, nil
		}
	}
}

// Rest returns, once Next has failed, the bytes that make no piece, and the data of an event that only
// lacks its empty line; nil where that is none, or is not whole.
func (r *Reader) Rest() Piece {
	p := Piece{Raw: r.buf[r.start:], Partial: r.over}
	if r.over || !errors.Is(r.err, io.EOF) {
		return p
	}
	if r.line < len(r.buf) {
		r.field(r.line, len(r.buf))
	}
	if r.size-1 <= r.limit {
		p.Data = r.data(len(r.buf))
	}
	return p
}

// take looks for a piece in what is there.
func (r *Reader) take() (Piece, bool) {
	for r.scan < len(r.buf) {
		if r.skipLF {
			r.skipLF = false
			if r.buf[r.scan] == '\n' {
				r.scan++
				r.line = r.scan
				continue
			}
		}
		end, ok := lineEnd(r.buf[r.scan:])
		if !ok {
			r.scan = len(r.buf)
			break
		}
		end += r.scan
		first := r.line
		r.scan = end + 1
		if r.buf[end] == '\r' {
			if r.scan < len(r.buf) && r.buf[r.scan] == '\n' {
				r.scan++
			} else {
				r.skipLF = r.scan == len(r.buf)
			}
		}
		r.line = r.scan
		switch {
		case first == end && len(r.cur) == 0:
			return r.finish(), true
		case r.over:
			r.passing(r.buf[first:end])
			r.passed()
		default:
			r.field(first, end)
		}
	}
	switch {
	case r.over && r.scan > r.start:
		// What belongs to the event goes on as it comes.
		r.passing(r.buf[r.line:r.scan])
		p := Piece{Raw: r.buf[r.start:r.scan], Partial: true}
		r.start, r.line = r.scan, r.scan
		return p, true
	case !r.over && !r.begun && r.line > r.start:
		// Whole comments: they keep connections up, so they must not wait for an event.
		p := Piece{Raw: r.buf[r.start:r.line]}
		r.start = r.line
		return p, true
	}
	return Piece{}, false
}

// field takes a line that is not empty.
func (r *Reader) field(first, end int) {
	if !r.later {
		first += len(mark(r.buf[first:end]))
	}
	r.later = true
	line := r.buf[first:end]
	if len(line) == 0 || line[0] == ':' {
		return
	}
	r.begun = true
	value, ok := dataOf(line)
	if !ok {
		return
	}
	if r.lines == 0 {
		r.from, r.value = first, [2]int{end - len(value), end}
	}
	r.lines++
	r.size += len(value) + 1
}

// passing takes a part of a line of an event that is being passed through.
func (r *Reader) passing(part []byte) {
	// Keep enough to recognise its end, and its head.
	r.cur = append(r.cur, part[:min(len(part), maxCur-len(r.cur))]...)
}

// passed takes such a line at its end.
func (r *Reader) passed() {
	line := r.cur
	if !r.later {
		line = line[len(mark(line)):]
	}
	r.later = true
	if value, ok := dataOf(line); ok {
		r.addHead(value)
		r.size += len(value) + 1
	}
	r.cur = r.cur[:0]
}

const maxCur = len(byteOrderMark) + len("data: ") + HeadBytes

// addHead takes the value of a data line, with a line end.
func (r *Reader) addHead(value []byte) {
	r.head = append(r.head, value[:min(len(value), HeadBytes-len(r.head))]...)
	if len(r.head) < HeadBytes {
		r.head = append(r.head, '\n')
	}
}

const byteOrderMark = "\xef\xbb\xbf"

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
func (r *Reader) finish() Piece {
	p := Piece{Raw: r.buf[r.start:r.scan]}
	switch {
	case r.over:
		if r.size > 1 {
			p.Over, p.NoRoom, p.Head = true, r.noRoom, bytes.TrimSuffix(r.head, []byte("\n"))
		}
	case r.size-1 > r.limit:
		data := r.data(r.scan)
		p.Over, p.Head = true, data[:min(len(data), HeadBytes)]
	default:
		p.Data = r.data(r.scan)
	}
	r.start = r.scan
	r.begun, r.size, r.lines, r.later = false, 0, 0, true
	r.over, r.noRoom = false, false
	return p
}

// data returns the data of the event that ends before end, nil where it has none. Empty data counts as none.
func (r *Reader) data(end int) []byte {
	switch {
	case r.size <= 1:
		return nil
	case r.lines == 1:
		return r.buf[r.value[0]:r.value[1]]
	}
	if cap(r.joined) < r.size {
		r.joined = make([]byte, 0, r.size)
	}
	r.joined = r.joined[:0]
	for value := range dataLines(r.buf[r.from:end]) {
		r.joined = append(append(r.joined, value...), '\n')
	}
	return r.joined[:len(r.joined)-1]
}

// dataLines yields the values of data lines.
func dataLines(b []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			line, rest := b, []byte(nil)
			if end, ok := lineEnd(b); ok {
				line, rest = b[:end], b[end+1:]
			}
			if value, ok := dataOf(line); ok && !yield(value) {
				return
			}
			b = rest
		}
	}
}

// fill reads more. Where there is no room for it, the event goes on as a part of one that is over the limit.
func (r *Reader) fill() (Piece, bool) {
	r.compact()
	if len(r.buf) == cap(r.buf) && !r.grow() {
		r.pass()
		p := Piece{Raw: r.buf, Partial: true}
		r.start, r.line, r.scan = len(r.buf), len(r.buf), len(r.buf)
		return p, true
	}
	n, err := r.r.Read(r.buf[len(r.buf):cap(r.buf)])
	r.buf = r.buf[:len(r.buf)+n]
	r.err = err
	return Piece{}, false
}

// pass begins to pass the event through: of what is there the head stays.
func (r *Reader) pass() {
	r.over, r.head, r.cur = true, r.head[:0], r.cur[:0]
	if r.lines > 0 {
		for value := range dataLines(r.buf[r.from:r.line]) {
			r.addHead(value)
		}
	}
	r.passing(r.buf[r.line:])
}

// compact moves what was not handed out to the start of the buffer, and lets a large buffer go once it is
// not needed.
func (r *Reader) compact() {
	rest := len(r.buf) - r.start
	if r.start == 0 && rest > 0 {
		return
	}
	by := r.start
	if r.held > 0 && rest <= r.base/2 {
		small := make([]byte, rest, r.base)
		copy(small, r.buf[r.start:])
		r.buf = small
		r.release(r.held)
		r.held = 0
	} else {
		copy(r.buf, r.buf[r.start:])
		r.buf = r.buf[:rest]
	}
	if cap(r.joined) > r.base {
		r.joined = nil
	}
	r.start, r.line, r.scan, r.from = 0, r.line-by, r.scan-by, r.from-by
	r.value[0] -= by
	r.value[1] -= by
}

// grow doubles the buffer, up to what an event may have.
func (r *Reader) grow() bool {
	most := r.limit + frame
	size := min(2*cap(r.buf), most)
	// The old and the new one are there at the same time, and joining data takes a copy.
	if size <= cap(r.buf) {
		return false
	}
	if !r.acquire(2*size - r.held) {
		r.noRoom = true
		return false
	}
	r.held = 2 * size
	bigger := make([]byte, len(r.buf), size)
	copy(bigger, r.buf)
	r.buf = bigger
	return true
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
