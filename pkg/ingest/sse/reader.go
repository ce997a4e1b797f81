package sse

import (
	"bytes"
	"errors"
	"io"
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
	// last of such an event; its data was not kept.
	Partial, Over bool
}

// Reader reads a stream by pieces. A piece is a whole event with what stands before it, or comments
// that came before the next event has begun, or a part of an event that is over the limit: those go
// through without being held. Lines end with LF, CRLF or CR.
//
// So whoever has sent whole pieces on, and none that was Partial, has sent no half of an event.
type Reader struct {
	r io.Reader
	// limit is the greatest event; what stands round its data (field names, comments) may be as much again as frame.
	limit int
	// acquire asks for n more bytes of memory, and release gives them back.
	acquire func(n int) bool
	release func(n int)
	held    int

	buf   []byte
	start int // of what was not handed out
	line  int // start of the line that is being read
	scan  int // up to here there is no line end
	err   error

	data    [][2]int // data lines of the event that is being read, their values in buf
	size    int      // of the data
	begun   bool     // the event has a line that is no comment
	over    bool     // the event is being passed through
	hasData bool     // …and had data
	midLine bool     // …and buf[start] is not the start of a line
	skipLF  bool     // the last line ended with CR: an LF behind it is the same end
	later   bool     // a line was read: only the first may have a byte order mark
	joined  []byte
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
	return &Reader{r: r, limit: limit, acquire: acquire, release: release, buf: make([]byte, 0, baseBuffer)}
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
	p.Data = r.joinedData()
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
		first, empty := r.line, end == r.line && !r.midLine
		r.midLine = false
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
		case empty:
			return r.finish(), true
		case r.over:
			r.hasData = r.hasData || r.buf[first] == 'd'
		default:
			r.field(first, end)
		}
	}
	switch {
	case r.over && r.scan > r.start:
		// What belongs to the event goes on as it comes.
		if r.line < r.scan && !r.midLine {
			r.hasData = r.hasData || r.buf[r.line] == 'd'
		}
		r.midLine = r.midLine || r.line < r.scan
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
	if !r.later && bytes.HasPrefix(r.buf[first:end], []byte("\xef\xbb\xbf")) {
		first += len("\xef\xbb\xbf")
	}
	r.later = true
	line := r.buf[first:end]
	if len(line) == 0 || line[0] == ':' {
		return
	}
	r.begun = true
	name, value, colon := bytes.Cut(line, []byte(":"))
	if string(name) != "data" {
		return
	}
	at := end
	if colon {
		if at = first + len("data:"); len(value) > 0 && value[0] == ' ' {
			at++
		}
	}
	r.data = append(r.data, [2]int{at, end})
	r.size += end - at + 1
}

// finish ends an event at its empty line.
func (r *Reader) finish() Piece {
	p := Piece{Raw: r.buf[r.start:r.scan]}
	switch {
	case r.over:
		p.Over = r.hasData
	case r.size-1 > r.limit:
		p.Over = true
	default:
		p.Data = r.joinedData()
	}
	r.start = r.scan
	r.data, r.size, r.begun, r.over, r.hasData = r.data[:0], 0, false, false, false
	return p
}

// joinedData returns the event's data, nil where it has none. Empty data is no event, by the standard.
func (r *Reader) joinedData() []byte {
	switch {
	case r.size <= 1 || r.size-1 > r.limit:
		return nil
	case len(r.data) == 1:
		return r.buf[r.data[0][0]:r.data[0][1]]
	}
	r.joined = r.joined[:0]
	for i, d := range r.data {
		if i > 0 {
			r.joined = append(r.joined, '\n')
		}
		r.joined = append(r.joined, r.buf[d[0]:d[1]]...)
	}
	return r.joined
}

// fill reads more. Where there is no room for it, the event goes on as a part of one that is over the limit.
func (r *Reader) fill() (Piece, bool) {
	r.compact()
	if len(r.buf) == cap(r.buf) && !r.grow() {
		r.over = true
		r.hasData = len(r.data) > 0 || (r.line < len(r.buf) && r.buf[r.line] == 'd')
		r.data, r.size = r.data[:0], 0
		r.midLine = r.line < len(r.buf)
		p := Piece{Raw: r.buf, Partial: true}
		r.start, r.line, r.scan = len(r.buf), len(r.buf), len(r.buf)
		return p, true
	}
	n, err := r.r.Read(r.buf[len(r.buf):cap(r.buf)])
	r.buf = r.buf[:len(r.buf)+n]
	r.err = err
	return Piece{}, false
}

// compact moves what was not handed out to the start of the buffer, and lets a large buffer go once it is
// not needed.
func (r *Reader) compact() {
	rest := len(r.buf) - r.start
	if r.start == 0 && rest > 0 {
		return
	}
	by := r.start
	if r.held > 0 && rest <= baseBuffer/2 {
		small := make([]byte, rest, baseBuffer)
		copy(small, r.buf[r.start:])
		r.buf = small
		r.release(r.held)
		r.held = 0
	} else {
		copy(r.buf, r.buf[r.start:])
		r.buf = r.buf[:rest]
	}
	if cap(r.joined) > baseBuffer {
		r.joined = nil
	}
	r.start, r.line, r.scan = 0, r.line-by, r.scan-by
	for i := range r.data {
		r.data[i][0] -= by
		r.data[i][1] -= by
	}
}

// grow doubles the buffer, up to what an event may have.
func (r *Reader) grow() bool {
	most := r.limit + frame
	size := min(2*cap(r.buf), most)
	// The old and the new one are there at the same time, and joining data takes a copy.
	if r.over || size <= cap(r.buf) || !r.acquire(2*size-r.held) {
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
