package ingest

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
)

// arrayReader reads one JSON array of events. It finds where elements end by counting brackets
// outside of strings; whether an element is well formed is checked once it is whole. The bytes of an
// event are those in the array.
type arrayReader struct {
	body  *body
	limit int
	line  int64 // of the next byte, from 1

	state arrayState
	long  grown // an element that does not lie in the buffer whole
}

type arrayState int

const (
	beforeArray arrayState = iota
	beforeFirst            // after [
	afterElement
	afterArray
)

func (a *arrayReader) next() (event, error) {
	for {
		c, err := a.skipSpace()
		if errors.Is(err, io.EOF) {
			switch a.state {
			case afterArray:
				return event{}, io.EOF
			case beforeArray:
				return event{}, badLine(agui.RuleNotJSON, a.line, "not JSON: the body is empty, an array without events is []")
			}
			return event{}, badLine(agui.RuleNotJSON, a.line, "not JSON: the body ends before the array does")
		}
		if err != nil {
			return event{}, a.body.failed(err, a.line)
		}
		switch {
		case a.state == beforeArray && c == '[':
			a.state = beforeFirst
			a.take(1)
		case a.state == beforeArray:
			return event{}, badLine(reasonNoArray, a.line, "%s takes an array of events; for one event a line set Content-Type to %s", typeJSON, typeNDJSON)
		case a.state == afterArray:
			return event{}, badLine(agui.RuleNotJSON, a.line, "not JSON: there is more after the array")
		case c == ']':
			a.state = afterArray
			a.take(1)
		case a.state == beforeFirst:
			return a.element()
		case c == ',':
			a.take(1)
			if c, err = a.skipSpace(); err == nil && c != ']' {
				return a.element()
			}
			if err != nil && !errors.Is(err, io.EOF) {
				return event{}, a.body.failed(err, a.line)
			}
			return event{}, badLine(agui.RuleNotJSON, a.line, "not JSON: a comma with no event after it")
		default:
			return event{}, badLine(agui.RuleNotJSON, a.line, "not JSON: want a comma or ] after an event")
		}
	}
}

// element reads the element that begins with the next byte.
func (a *arrayReader) element() (event, error) {
	first, err := a.body.Peek(1)
	if err != nil {
		return event{}, a.body.failed(err, a.line)
	}
	if first[0] != '{' {
		if strings.IndexByte("[\"-0123456789tfn", first[0]) >= 0 {
			return event{}, badLine(agui.RuleNotObject, a.line, "not a JSON object")
		}
		return event{}, badLine(agui.RuleNotJSON, a.line, "not JSON: unexpected character %q", first[0])
	}
	ev := event{seq: -1, line: a.line}
	var s elementScanner
	value := &a.long
	value.reset()
	defer func() { a.body.begun(false) }()
	for {
		if _, err := a.body.Peek(1); err != nil {
			if errors.Is(err, io.EOF) {
				return event{}, badLine(agui.RuleNotJSON, ev.line, "not JSON: the body ends before the event does")
			}
			return event{}, a.body.failed(err, ev.line)
		}
		buf, _ := a.body.Peek(a.body.Buffered()) // what is there: no error
		n, done := s.scan(buf)
		if len(value.b)+n > a.limit {
			return event{}, tooLarge(ev.line, a.limit)
		}
		if done && len(value.b) == 0 { // all of it lies in the buffer
			ev.value = bytes.Clone(buf[:n])
			a.take(n)
			a.state = afterElement
			return ev, nil
		}
		if rej := value.add(buf[:n]); rej != nil {
			return event{}, a.body.failed(rej, ev.line)
		}
		a.take(n)
		if done {
			a.state = afterElement
			ev.value, ev.held = value.own()
			return ev, nil
		}
		a.body.begun(true)
	}
}

// skipSpace returns the next byte that is not white space, without taking it.
func (a *arrayReader) skipSpace() (byte, error) {
	if a.state == beforeArray && a.line == 1 {
		a.body.skipMark()
	}
	for {
		if _, err := a.body.Peek(1); err != nil {
			return 0, err
		}
		buf, _ := a.body.Peek(a.body.Buffered())
		rest := bytes.TrimLeft(buf, space)
		a.take(len(buf) - len(rest))
		if len(rest) > 0 {
			return rest[0], nil
		}
	}
}

// take takes n bytes that are buffered.
func (a *arrayReader) take(n int) {
	buf, _ := a.body.Peek(n)
	a.line += int64(bytes.Count(buf, []byte{'\n'}))
	_, _ = a.body.Discard(n)
}

// elementScanner finds the end of an object that comes in pieces.
type elementScanner struct {
	depth            int
	inString, escape bool
}

// scan returns how many bytes of b belong to the object, and whether it ends there.
func (s *elementScanner) scan(b []byte) (int, bool) {
	for i, c := range b {
		switch {
		case s.escape:
			s.escape = false
		case s.inString:
			s.escape = c == '\\'
			s.inString = c != '"'
		case c == '"':
			s.inString = true
		case c == '{' || c == '[':
			s.depth++
		case c == '}' || c == ']':
			if s.depth--; s.depth == 0 {
				return i + 1, true
			}
		}
	}
	return len(b), false
}
