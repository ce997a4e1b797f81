package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// eventReader reads events one by one out of NDJSON, SSE, a JSON array, or JSON objects that span lines. A byte
// order mark in front is left out. Which form it is shows in the first line that is not empty: an array starts with
// a bracket, an SSE field with its name, an event with a brace. Where the first event is not all of its line, objects
// are read wherever they end.
//
// An event is returned as soon as its last byte was read, that of a line with the line feed. No more than one is
// held in memory.
type eventReader struct {
	r *bufio.Reader
	// line is the line at which the last event begins, from 1; in an array, its place.
	line int
	form eventForm
	// lines is how many line feeds were read, and inLine whether more than white space was read behind the last.
	lines  int
	inLine bool
	// onlySSE is the first line of SSE until an event was found, else 0.
	onlySSE int
	// lost says that an object was broken: its rest is passed over, up to a line that begins another one.
	lost  bool
	array *json.Decoder
	// fed counts the lines that the array's decoder has read.
	fed lineFeeds
	// strict refuses a line of SSE that is no field, where other readers pass over it.
	strict bool
}

type eventForm int

const (
	formUnknown eventForm = iota
	formNDJSON
	formSSE
	formArray
	formObjects
)

const (
	jsonSpace = " \t\r\n"
	// byteOrderMark is what some tools put in front of UTF-8.
	byteOrderMark = "\xef\xbb\xbf"
)

func newEventReader(r io.Reader) *eventReader {
	return &eventReader{r: bufio.NewReaderSize(r, 64<<10)}
}

// where names the place of the last event for people.
func (e *eventReader) where() string {
	if e.form == formArray {
		return fmt.Sprintf("event %d of the array", e.line)
	}
	return fmt.Sprintf("line %d", e.line)
}

// in names the place of the last event in a file, as messages about lines of files do.
func (e *eventReader) in(path string) string {
	if e.form == formArray {
		return path + ": " + e.where()
	}
	return fmt.Sprintf("%s:%d", path, e.line)
}

// next returns the next event's JSON text on one line, or io.EOF. What is there in place of an event is
// returned too, as is one that the end of the stream cuts off: whether it is whole shows when it is decoded.
func (e *eventReader) next() ([]byte, error) {
	if e.form == formUnknown {
		if text, err := e.begin(); text != nil || err != nil {
			return text, err
		}
	}
	switch e.form {
	case formSSE:
		return e.nextOfSSE()
	case formArray:
		return e.nextOfArray()
	case formObjects:
		return e.nextObject()
	default:
		return e.nextLine()
	}
}

// begin looks at the next line that is not empty. It returns the event on it where it had to read that. A line
// that is of no form is returned too: what follows it may be NDJSON, or objects that span lines.
func (e *eventReader) begin() ([]byte, error) {
	first := e.line == 0
	if first {
		e.skipMark()
	}
	c, err := e.skip(jsonSpace)
	if err != nil {
		return nil, err
	}
	switch {
	case c == '{':
		return e.firstObject()
	case first && c == '[':
		e.form, e.fed = formArray, lineFeeds{r: e.r, line: e.lines + 1}
		e.array = json.NewDecoder(&e.fed)
		_, err := e.array.Token()
		return nil, err
	case first && e.isSSE():
		e.form, e.onlySSE = formSSE, e.lines+1
		return nil, nil
	}
	return e.nextLine()
}

// startsSSE reports whether the events are SSE, where nothing was read yet. It takes a byte order mark and empty lines in
// front away; an empty reader is no SSE.
func (e *eventReader) startsSSE() (bool, error) {
	e.skipMark()
	if _, err := e.skip("\r\n"); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return e.isSSE(), nil
}

// firstObject tells objects that span lines, or share one, from NDJSON.
func (e *eventReader) firstObject() ([]byte, error) {
	text, whole, err := e.object()
	if err != nil {
		return nil, err
	}
	spans := e.lines >= e.line
	if whole && !spans {
		next, err := e.skip(" \t") // there is a line feed at least
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		spans = next == '{'
	}
	if spans {
		e.form = formObjects
		return text, nil
	}
	e.form, e.lost = formNDJSON, false
	rest, err := e.takeLine()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return bytes.Trim(append(text, rest...), jsonSpace), nil
}

// nextLine returns the next line that is not empty.
func (e *eventReader) nextLine() ([]byte, error) {
	for {
		e.line = e.lines + 1
		line, err := e.takeLine()
		if err != nil {
			return nil, err
		}
		if line = bytes.Trim(line, jsonSpace); len(line) > 0 {
			return line, nil
		}
	}
}

// nextObject returns the next object, or the rest of a line that is none.
func (e *eventReader) nextObject() ([]byte, error) {
	c, err := e.skip(jsonSpace)
	for err == nil && e.lost && (c != '{' || e.inLine) {
		if _, err = e.takeLine(); err == nil {
			c, err = e.skip(jsonSpace)
		}
	}
	if err != nil {
		return nil, err
	}
	if c != '{' {
		return e.nextLine()
	}
	text, _, err := e.object()
	return text, err
}

// object reads the object that begins with the next byte, up to its end or to where it is broken.
func (e *eventReader) object() (text []byte, whole bool, err error) {
	e.line = e.lines + 1
	var scan objectScanner
	for {
		buf, err := e.buffered()
		if errors.Is(err, io.EOF) {
			return text, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		n, end := scan.next(buf)
		text = append(text, buf[:n]...)
		e.take(n)
		if end != scanMore {
			e.lost = end == scanBroken
			return onOneLine(text), !e.lost, nil
		}
	}
}

// nextOfSSE returns the data of the next event of SSE. Empty data is no event.
func (e *eventReader) nextOfSSE() ([]byte, error) {
	var data []byte
	from := 0 // the line of the first data
	for {
		at := e.lines + 1
		line, err := e.takeLine()
		end := errors.Is(err, io.EOF)
		if err != nil && !end {
			return nil, err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch value, ok := bytes.CutPrefix(line, []byte("data:")); {
		case len(line) == 0 && len(data) > 0:
			e.line, e.onlySSE = from, 0
			return data, nil
		case end && e.onlySSE > 0:
			e.line = e.onlySSE
			return nil, fmt.Errorf("reading events: line %d looks like SSE, but no line has data", e.line)
		case end:
			return nil, io.EOF
		case len(line) == 0:
			from = 0
		case ok && from == 0:
			from, data = at, bytes.TrimPrefix(value, []byte(" "))
		case ok:
			// Lines of one event are joined by a space: JSON has no bare line feed in a string, so
			// that this changes nothing but white space.
			data = append(append(data, ' '), bytes.TrimPrefix(value, []byte(" "))...)
		case e.strict && !isSSE(line):
			e.line = at
			return nil, fmt.Errorf("reading events: %.80q is not a line of SSE", line)
		}
	}
}

func (e *eventReader) nextOfArray() ([]byte, error) {
	if !e.array.More() {
		if _, err := e.array.Token(); err != nil {
			return nil, fmt.Errorf("reading array of events: it does not end after event %d: %w", e.line, unexpected(err))
		}
		if _, err := e.array.Token(); !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("reading array of events: something follows it")
		}
		return nil, io.EOF
	}
	e.line++
	var event json.RawMessage
	if err := e.array.Decode(&event); err != nil {
		return nil, fmt.Errorf("reading array of events: event %d: %w", e.line, unexpected(err))
	}
	e.fed.to(e.array.InputOffset() - int64(len(event)))
	return onOneLine(event), nil
}

// lineFeeds tells in which line a place of what was read lies, for a reader that reads ahead.
type lineFeeds struct {
	r    io.Reader
	read int64
	// line is that of the last place; ahead are the line feeds behind it.
	line  int
	ahead []int64
}

// Read implements io.Reader.
func (l *lineFeeds) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	for i, c := range p[:n] {
		if c == '\n' {
			l.ahead = append(l.ahead, l.read+int64(i))
		}
	}
	l.read += int64(n)
	return n, err
}

// to goes to a place that is not before the last one.
func (l *lineFeeds) to(place int64) {
	n, _ := slices.BinarySearch(l.ahead, place)
	l.line, l.ahead = l.line+n, append(l.ahead[:0], l.ahead[n:]...)
}

// unexpected is for an end in the middle, which is not the end of the events.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// onOneLine takes the layout out of JSON that spans lines. What is not JSON stays as it is.
func onOneLine(text []byte) []byte {
	var line bytes.Buffer
	if !bytes.ContainsAny(text, "\r\n") || json.Compact(&line, text) != nil {
		return text
	}
	return line.Bytes()
}

// skipMark takes a byte order mark away.
func (e *eventReader) skipMark() {
	if buf, err := e.buffered(); err != nil || buf[0] != byteOrderMark[0] {
		return // the next read tells the error again
	}
	if head, err := e.r.Peek(len(byteOrderMark)); err == nil && string(head) == byteOrderMark {
		_, _ = e.r.Discard(len(head)) // they are buffered
	}
}

// isSSE reports whether the next line is a field of SSE or a comment. An event that it might wait for is longer.
func (e *eventReader) isSSE() bool {
	head, _ := e.r.Peek(len("event:")) // an error comes again with the next read
	return isSSE(head)
}

func isSSE(line []byte) bool {
	return slices.ContainsFunc([]string{"data:", "event:", "id:", "retry:", ":"}, func(field string) bool {
		return strings.HasPrefix(string(line), field)
	})
}

// buffered returns what can be read at once, after waiting for the first byte.
func (e *eventReader) buffered() ([]byte, error) {
	if _, err := e.r.Peek(1); err != nil {
		return nil, readError(err)
	}
	return e.r.Peek(e.r.Buffered())
}

// skip takes white space, and returns the byte behind it, which it leaves.
func (e *eventReader) skip(space string) (byte, error) {
	for {
		buf, err := e.buffered()
		if err != nil {
			return 0, err
		}
		rest := bytes.TrimLeft(buf, space)
		e.take(len(buf) - len(rest))
		if len(rest) > 0 {
			return rest[0], nil
		}
	}
}

// take takes n bytes of those that are buffered.
func (e *eventReader) take(n int) {
	taken, _ := e.r.Peek(n)
	if i := bytes.LastIndexByte(taken, '\n'); i >= 0 {
		e.lines += bytes.Count(taken, []byte{'\n'})
		taken, e.inLine = taken[i+1:], false
	}
	e.inLine = e.inLine || len(bytes.TrimLeft(taken, jsonSpace)) > 0
	_, _ = e.r.Discard(n)
}

// takeLine takes the rest of the line, with its line feed; io.EOF is for none at all.
func (e *eventReader) takeLine() ([]byte, error) {
	line, err := e.r.ReadBytes('\n')
	if err == nil {
		e.lines++
	}
	e.inLine = false
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = nil
	}
	return line, readError(err)
}

// readError says of an error other than the end where it comes from.
func readError(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return fmt.Errorf("reading events: %w", err)
}

// objectScanner finds the end of a JSON object that comes in pieces. It looks at strings, brackets, and what an opening one
// stands behind, so that an object that was cut off is broken where the next one begins, if not before. Whether it is
// well formed shows when it is decoded.
type objectScanner struct {
	open             []byte // the brackets that are open
	last             byte   // the last byte outside of strings that is no white space, a string's quote included
	inString, escape bool
}

// scanEnd is why a scan is over.
type scanEnd int

const (
	scanMore   scanEnd = iota // the object goes on behind the bytes
	scanWhole                 // it has ended
	scanBroken                // it cannot go on as the bytes do
)

// next returns how many bytes of b belong to the object.
func (s *objectScanner) next(b []byte) (int, scanEnd) {
	for i, c := range b {
		switch {
		case s.inString:
			switch {
			case c < ' ':
				return i, scanBroken
			case s.escape:
				s.escape = false
			case c == '\\':
				s.escape = true
			case c == '"':
				s.inString = false
			}
			continue
		case strings.IndexByte(jsonSpace, c) >= 0:
			continue
		case c == '{' || c == '[':
			if s.last != 0 && s.last != ':' && (s.innermost() != '[' || s.last != '[' && s.last != ',') {
				return i, scanBroken
			}
			s.open = append(s.open, c)
		case c == '"':
			if strings.IndexByte("{[,:", s.last) < 0 {
				return i, scanBroken
			}
			s.inString = true
		case c == '}' || c == ']':
			if s.innermost() != c-2 { // as { and [ stand before them in ASCII
				return i, scanBroken
			}
			if s.open = s.open[:len(s.open)-1]; len(s.open) == 0 {
				return i + 1, scanWhole
			}
		}
		s.last = c
	}
	return len(b), scanMore
}

func (s *objectScanner) innermost() byte { return s.open[len(s.open)-1] }
