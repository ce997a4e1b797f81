package ingest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// lineSlack is what a line may hold beside its event: indentation, a carriage return, "data: ", the
// frame of a numbered event.
const lineSlack = 4 << 10

// lineReader reads lines of bounded length.
type lineReader struct {
	body  *body
	limit int // of the events; a line may have lineSlack more
	// line is the number of the line that was read last, from 1.
	line    int64
	started bool
	long    grown // a line that does not lie in the buffer whole
	inLong  bool  // the line that was read last lies there
	cut     bool  // the rest of a line that was too long is still there
}

func newLineReader(b *body, limit int) *lineReader {
	return &lineReader{body: b, limit: limit, long: grown{claim: b.claim}}
}

// next returns the next line without its line feed. The line is valid until the next call. A body
// that ends without a line feed has one last line; io.EOF comes after it. All other errors are
// *front.Problem: a line that was cut off is not returned, even if it looks whole.
func (l *lineReader) next() ([]byte, error) {
	l.long.reset()
	l.inLong = false
	if !l.started {
		l.started = true
		l.body.skipMark()
	}
	for l.cut {
		_, err := l.body.ReadSlice('\n')
		switch {
		case err == nil:
			l.cut = false
		case errors.Is(err, io.EOF):
			return nil, io.EOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, l.body.failed(err, l.line)
		}
	}
	l.line++
	for {
		part, err := l.body.ReadSlice('\n')
		if len(l.long.b)+len(part) > l.limit+lineSlack {
			l.cut = err != nil
			l.body.begun(false)
			return nil, badEventError{tooLarge(l.line, l.limit)}
		}
		switch {
		case err == nil:
			part = part[:len(part)-1]
			if len(l.long.b) == 0 {
				return part, nil
			}
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			if len(l.long.b)+len(part) == 0 {
				return nil, io.EOF
			}
		default:
			return nil, l.body.failed(err, l.line)
		}
		if rej := l.long.add(part); rej != nil {
			return nil, l.body.failed(rej, l.line)
		}
		if l.inLong = err == nil || errors.Is(err, io.EOF); l.inLong {
			l.body.begun(false)
			return l.long.b, nil
		}
		l.body.begun(true)
	}
}

// own returns a part of the line that was read last as an event's value that no other code refers to. It does not copy long lines.
func (l *lineReader) own(part []byte) (value []byte, held int) {
	if !l.inLong || len(part) < keptRoom {
		return bytes.Clone(part), 0
	}
	_, held = l.long.hand()
	return part, held
}
