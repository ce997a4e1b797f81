package eventstream

import (
	"bytes"
	"errors"
	"io"
)

// Memory accounts for what a reader holds beyond its first buffer. The zero value accounts for nothing.
type Memory struct {
	// Acquire takes n bytes more. Its error is that of the event that needs them.
	Acquire func(n int64) error
	// Release gives n bytes back.
	Release func(n int64)
}

// frame is what an event may have around it: indentation, field names, comments, the members of a numbered line.
const frame = 4 << 10

const byteOrderMark = "\xef\xbb\xbf"

// errTooLarge: the event does not fit in the largest buffer.
var errTooLarge = errors.New("the event is too large")

// buffer holds what was read and not taken. It grows up to an event of the limit.
type buffer struct {
	r      io.Reader
	limit  int // of an event
	memory Memory
	held   int64 // bytes acquired
	base   int   // size of the first buffer
	buf    []byte
	start  int   // of what was not taken
	err    error // of r
}

func newBuffer(r io.Reader, limit, size int, memory Memory) buffer {
	if memory.Acquire == nil {
		memory = Memory{func(int64) error { return nil }, func(int64) {}}
	}
	size = min(size, limit+frame)
	return buffer{r: r, limit: limit, memory: memory, base: size, buf: make([]byte, 0, size)}
}

// Close releases the memory. It does not close the reader below.
func (b *buffer) Close() {
	b.memory.Release(b.held)
	b.held, b.buf, b.start = 0, nil, 0
}

// rest returns what was read and not taken, until the next call of fill.
func (b *buffer) rest() []byte { return b.buf[b.start:] }

// take takes the next n bytes of the rest.
func (b *buffer) take(n int) []byte {
	taken := b.buf[b.start : b.start+n]
	b.start += n
	return taken
}

// fill reads more. The error is errTooLarge, that of Memory.Acquire, or that of the reader below.
func (b *buffer) fill() error {
	if b.err != nil {
		return b.err
	}
	b.compact()
	if len(b.buf) == cap(b.buf) {
		if err := b.grow(); err != nil {
			return err
		}
	}
	n, err := b.r.Read(b.buf[len(b.buf):cap(b.buf)])
	b.buf, b.err = b.buf[:len(b.buf)+n], err
	if n > 0 {
		return nil
	}
	return err
}

// compact moves the rest to the start of the buffer. It drops a large buffer that is not needed any more.
func (b *buffer) compact() {
	rest := b.rest()
	switch {
	case b.held > 0 && len(rest) <= b.base/2:
		b.buf = append(make([]byte, 0, b.base), rest...)
		b.memory.Release(b.held)
		b.held = 0
	case b.start > 0:
		b.buf = append(b.buf[:0], rest...)
	}
	b.start = 0
}

// grow doubles the buffer, up to what an event of the limit may have.
func (b *buffer) grow() error {
	size := min(2*cap(b.buf), b.limit+frame)
	if size <= cap(b.buf) {
		return errTooLarge
	}
	// The old buffer and the new one exist at the same time, and lines of data are joined in a copy.
	if err := b.memory.Acquire(2*int64(size) - b.held); err != nil {
		return err
	}
	b.held = 2 * int64(size)
	b.buf = append(make([]byte, 0, size), b.buf...)
	return nil
}

// skipMark takes a byte order mark that the stream begins with. It reads no more than one byte of a stream without one.
func (b *buffer) skipMark() error {
	for mark := []byte(byteOrderMark); ; {
		rest := b.rest()
		switch {
		case len(rest) > 0 && !bytes.HasPrefix(mark, rest[:min(len(rest), len(mark))]):
			return nil
		case len(rest) >= len(mark):
			b.take(len(mark))
			return nil
		}
		if err := b.fill(); err != nil {
			return err
		}
	}
}
