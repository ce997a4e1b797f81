package ingest

import (
	"bufio"
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
	long    []byte
	cut     bool // the rest of a line that was too long is still there
}

func newLineReader(b *body, limit int) *lineReader { return &lineReader{body: b, limit: limit} }

// next returns the next line without its line feed. The line is valid until the next call. A body
// that ends without a line feed has one last line; io.EOF comes after it. All other errors are
// *rejection: a line that was cut off is not returned, even if it looks whole.
func (l *lineReader) next() ([]byte, error) {
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
	if cap(l.long) > 1<<20 {
		l.long = nil // one large event must not cost its size for the rest of the stream
	}
	l.long = l.long[:0]
	for {
		part, err := l.body.ReadSlice('\n')
		if len(l.long)+len(part) > l.limit+lineSlack {
			l.cut = err != nil
			return nil, tooLarge(l.line, l.limit).andOn()
		}
		switch {
		case err == nil:
			part = part[:len(part)-1]
			if len(l.long) == 0 {
				return part, nil
			}
			l.long = append(l.long, part...)
			return l.long, nil
		case errors.Is(err, bufio.ErrBufferFull):
			l.long = append(l.long, part...)
		case errors.Is(err, io.EOF):
			if len(l.long)+len(part) == 0 {
				return nil, io.EOF
			}
			l.long = append(l.long, part...)
			return l.long, nil
		default:
			return nil, l.body.failed(err, l.line)
		}
	}
}
