package eventstream

import (
	"bytes"
	"errors"
	"io"
	"math/bits"
	"sync"
)

// Memory accounts for a reader's memory beyond its first buffer. The zero value accounts for nothing.
type Memory struct {
	// Acquire acquires n more bytes. An error fails the event that needs them.
	Acquire func(n int64) error
	// Release releases n bytes.
	Release func(n int64)
}

// frame is how many bytes may surround an event: indentation, field names, comments and the members of numbered lines.
const frame = 4 << 10

const byteOrderMark = "\xef\xbb\xbf"

// firsts are the first buffers of closed readers, by the number of bits of their size. Making and clearing one for each short body would
// cost as much as checking its events.
var firsts [64]sync.Pool

// errTooLarge means that an event does not fit into the largest buffer.
var errTooLarge = errors.New("the event is too large")

// buffer contains bytes that were read and not yet taken. It grows up to limit + frame bytes.
type buffer struct {
	r      io.Reader
	limit  int // size limit of an event
	memory Memory
	held   int64 // bytes acquired
	base   int   // size of the first buffer
	first  *[]byte
	buf    []byte
	start  int   // start of the bytes not yet taken
	err    error // error of r
}

func newBuffer(r io.Reader, limit, size int, memory Memory) buffer {
	if memory.Acquire == nil {
		memory = Memory{func(int64) error { return nil }, func(int64) {}}
	}
	size = min(size, limit+frame)
	first, _ := firsts[bits.Len(uint(size))].Get().(*[]byte)
	if first == nil || cap(*first) < size {
		made := make([]byte, 0, size)
		first = &made
	}
	return buffer{r: r, limit: limit, memory: memory, base: size, first: first, buf: (*first)[:0:size]}
}

// Close releases the memory, which another reader may then use. It does not close the underlying reader.
func (b *buffer) Close() {
	if b.first != nil {
		firsts[bits.Len(uint(b.base))].Put(b.first)
		b.first = nil
	}
	b.memory.Release(b.held)
	b.held, b.buf, b.start = 0, nil, 0
}

// rest returns the bytes not yet taken. They are valid until the next call of fill.
func (b *buffer) rest() []byte { return b.buf[b.start:] }

// take removes the first n bytes of the rest and returns them.
func (b *buffer) take(n int) []byte {
	taken := b.buf[b.start : b.start+n]
	b.start += n
	return taken
}

// fill reads more bytes. The error is errTooLarge, or comes from Memory.Acquire or the underlying reader.
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

// compact moves the rest to the start of the buffer. It replaces a large buffer with a small one if possible.
func (b *buffer) compact() {
	rest := b.rest()
	switch {
	case b.held > 0 && len(rest) <= b.base/2:
		b.buf = append((*b.first)[:0:b.base], rest...)
		b.memory.Release(b.held)
		b.held = 0
	case b.start > 0:
		b.buf = append(b.buf[:0], rest...)
	}
	b.start = 0
}

// grow doubles the buffer, up to limit + frame bytes.
func (b *buffer) grow() error {
	size := min(2*cap(b.buf), b.limit+frame)
	if size <= cap(b.buf) {
		return errTooLarge
	}
	// Acquire twice the size: the old and the new buffer exist at the same time, and SSE joins lines of data in a copy.
	if err := b.memory.Acquire(2*int64(size) - b.held); err != nil {
		return err
	}
	b.held = 2 * int64(size)
	b.buf = append(make([]byte, 0, size), b.buf...)
	return nil
}

// skipMark skips a byte order mark at the start of the stream. It waits only while the bytes may be a mark.
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
