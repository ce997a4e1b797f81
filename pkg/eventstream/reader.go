package eventstream

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"

	"github.com/skeinhq/skein/pkg/agui"
)

// Space is the white space of JSON.
const Space = " \t\r\n"

// Form is a format of events in a stream.
type Form int

const (
	// NDJSON has one event per line. Empty lines, and white space around an event, are ignored.
	NDJSON Form = iota
	// Numbered has lines of the form {"seq": n, "event": {…}}. The numbers must rise within a stream.
	Numbered
	// Array is one JSON array.
	Array
	// ServerSent is a stream of server-sent events (WHATWG HTML, 9.2). An AG-UI event is the value of the data lines,
	// joined by line feeds. Comments and other fields are ignored. The last event needs no empty line after it.
	ServerSent
	// Any detects NDJSON, Array or ServerSent from the first line that is not empty. It also accepts JSON objects that
	// span lines or share a line. Next returns lines and cut-off objects that are not valid events as events; decoding
	// them reports the fault.
	Any
	objects
)

// Event is one event of a stream.
type Event struct {
	// Value contains the event's original bytes, with SSE data lines joined, and with JSON on one line for Any. It is
	// valid until the next call of Next.
	Value []byte
	// Seq is the producer's number of the event; -1 if the form has none.
	Seq int64
	// Line is the line on which the event begins, from 1.
	Line int64
}

// Reader reads events up to a size limit.
type Reader struct {
	*buffer
	form Form
	sse  *SSE // nil unless the form is known to be ServerSent

	at    int64 // line of the current event or fault
	line  int64 // line of the next byte
	began bool  // the start was checked for a byte order mark
	count int

	cut   bool  // skip the rest of a line (ServerSent: of an event) that was too long
	seq   int64 // last number of a Numbered stream; -1 before the first
	array arrayState
	scan  objectScanner // its memory is kept from one object to the next
	any   anyState
	ended bool // ServerSent: the stream has ended

	// Strict refuses lines of server-sent events that are not fields.
	Strict bool
}

type arrayState int

const (
	beforeArray arrayState = iota
	beforeFirst            // after [
	afterElement
	afterArray
)

// New returns a reader of events of up to limit bytes. The argument size is that of the first buffer, which memory does
// not account for.
func New(r io.Reader, form Form, limit, size int, memory Memory) *Reader {
	b := newBuffer(r, limit, size, memory)
	rd := &Reader{buffer: &b, form: form, line: 1, at: 1, seq: -1}
	if form == ServerSent {
		rd.serverSent()
	}
	return rd
}

// serverSent sets the form of the rest of the stream to ServerSent.
func (r *Reader) serverSent() {
	r.form = ServerSent
	r.sse = newSSE(*r.buffer)
	r.sse.number, r.sse.top, r.sse.later = r.line, r.line, r.began
	r.buffer = &r.sse.buffer
}

// Pending reports whether bytes of an event that Next has not returned were read.
func (r *Reader) Pending() bool { return r.cut || len(r.rest()) > 0 }

// Line returns the line on which the last event begins, or the line of the last error's fault.
func (r *Reader) Line() int64 { return r.at }

// Count returns the number of events that Next has returned. For an Array, it includes an event with an error.
func (r *Reader) Count() int { return r.count }

// Form returns the form of the stream; Any until it is detected.
func (r *Reader) Form() Form { return r.form }

// Next returns the next event. At the end it returns io.EOF. Other errors are an *Error, or come from the underlying
// reader or Memory.Acquire.
func (r *Reader) Next() (Event, error) {
	if !r.began && r.form != ServerSent {
		r.began = true
		if err := r.skipMark(); err != nil && !errors.Is(err, io.EOF) {
			return Event{}, err
		}
	}
	value, seq, err := r.next()
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			r.at = e.Line
		}
		return Event{}, err
	}
	if r.form != Array {
		r.count++
	}
	return Event{Value: value, Seq: seq, Line: r.at}, nil
}

func (r *Reader) next() (value []byte, seq int64, err error) {
	if r.form == Any {
		if value, err = r.begin(); value != nil || err != nil {
			return value, -1, err
		}
	}
	switch r.form {
	case ServerSent:
		value, err = r.nextData()
	case Array:
		if value, err = r.nextElement(); r.any.is {
			value = onOneLine(value)
		}
	case objects:
		value, err = r.nextObject()
	case Numbered:
		if value, err = r.nextLine(); err == nil {
			return r.unwrap(value)
		}
	default:
		if value, err = r.nextLine(); err == nil && len(value) > r.limit {
			err = tooLarge(r.at, r.limit).andMore()
		}
	}
	return value, -1, err
}

// nextLine returns the next line that is not empty, without surrounding white space.
func (r *Reader) nextLine() ([]byte, error) {
	for {
		line, err := r.rawLine()
		if err != nil {
			return nil, err
		}
		if line = bytes.Trim(line, Space); len(line) > 0 {
			return line, nil
		}
	}
}

// rawLine returns the next line. The last line may lack its line feed; the next call then returns io.EOF.
func (r *Reader) rawLine() ([]byte, error) {
	r.at = r.line
	for scanned := 0; ; {
		rest := r.rest()
		if i := bytes.IndexByte(rest[scanned:], '\n'); i >= 0 {
			line := r.skip(scanned + i + 1)
			if r.cut {
				r.cut, scanned, r.at = false, 0, r.line
				continue
			}
			return line, nil
		}
		if scanned = len(rest); r.cut {
			r.skip(scanned)
			scanned = 0
		}
		switch err := r.fill(); {
		case err == nil:
		case errors.Is(err, errTooLarge):
			r.skip(scanned)
			r.cut = true
			return nil, tooLarge(r.at, r.limit).andMore()
		case errors.Is(err, io.EOF) && scanned > 0:
			return r.skip(scanned), nil
		default:
			return nil, err
		}
	}
}

// numbered matches a numbered line whose event may be malformed.
var numbered = regexp.MustCompile(`^\{"seq": ?([0-9]+), ?"event": ?(.+)\}$`)

// unwrap returns the event of a numbered line, byte for byte, and its number. The numbers of a stream must rise, because readers of the
// topic would silently drop an event with a lower or equal number. A later stream may have the same numbers: it sends events again.
func (r *Reader) unwrap(line []byte) ([]byte, int64, error) {
	var seq, value []byte
	if err := agui.CheckDepth(line, agui.MaxEventDepth+len("{")); err != nil {
		m := numbered.FindSubmatch(line)
		if m == nil || !agui.TypeOf(m[2]).Terminal() { // a malformed end ends the run all the same
			return nil, -1, malformed(r.at, err).andMore()
		}
		seq, value, line = m[1], m[2], nil
	} else if !agui.IsObject(line) {
		return nil, -1, bad(r.at, agui.RuleNotObject, "not a JSON object: want {\"seq\": n, \"event\": {…}}").andMore()
	}
	for name, v := range agui.Members(line) {
		switch name {
		case "seq":
			seq = v
		case "event":
			value = v
		}
	}
	// Only digits are accepted. 1.0 and 1e3 are JSON numbers, too, but no producer writes such numbers.
	n, err := strconv.ParseUint(string(seq), 10, 63)
	switch {
	case err != nil:
		return nil, -1, bad(r.at, ReasonSeq, "seq must be the event's number in its run, from 0: want {\"seq\": n, \"event\": {…}}").andMore()
	case int64(n) <= r.seq:
		return nil, -1, bad(r.at, ReasonSeqOrder, "seq %d does not rise: a line before it has %d, and an event after a greater number is dropped", n, r.seq).andMore()
	}
	r.seq = int64(n)
	switch {
	case value == nil:
		return nil, -1, bad(r.at, agui.RuleNotObject, "no event: want {\"seq\": n, \"event\": {…}}").andMore()
	case len(value) > r.limit:
		return nil, -1, tooLarge(r.at, r.limit).andMore()
	}
	return value, r.seq, nil
}

// nextElement returns the next element of the array, or io.EOF after the array.
func (r *Reader) nextElement() ([]byte, error) {
	for {
		c, err := r.skipSpace(Space)
		r.at = r.line
		if errors.Is(err, io.EOF) {
			switch r.array {
			case afterArray:
				return nil, io.EOF
			case beforeArray:
				return nil, bad(r.at, agui.RuleNotJSON, "not JSON: there is nothing, an array without events is []")
			}
			return nil, bad(r.at, agui.RuleNotJSON, "not JSON: the array does not end after the event")
		}
		if err != nil {
			return nil, err
		}
		switch {
		case r.array == beforeArray && c == '[':
			r.array = beforeFirst
		case r.array == beforeArray:
			return nil, bad(r.at, ReasonNoArray, "application/json is an array of events; for one event a line set Content-Type to application/x-ndjson")
		case r.array == afterArray:
			return nil, bad(r.at, agui.RuleNotJSON, "not JSON: something follows the array")
		case c == ']':
			r.array = afterArray
		case r.array == beforeFirst:
			return r.element(c)
		case c == ',':
			r.skip(1)
			if c, err = r.skipSpace(Space); err == nil && c != ']' {
				return r.element(c)
			}
			if err != nil && !errors.Is(err, io.EOF) {
				return nil, err
			}
			return nil, bad(r.line, agui.RuleNotJSON, "not JSON: a comma with no event after it")
		default:
			return nil, bad(r.at, agui.RuleNotJSON, "not JSON: want a comma or ] after an event")
		}
		r.skip(1)
	}
}

// element returns the element that begins with the next byte, c.
func (r *Reader) element(c byte) ([]byte, error) {
	r.at = r.line
	r.count++
	switch {
	case c == '{':
	case bytes.IndexByte([]byte("[\"-0123456789tfn"), c) >= 0:
		return nil, bad(r.at, agui.RuleNotObject, "not a JSON object")
	default:
		return nil, bad(r.at, agui.RuleNotJSON, "not JSON: unexpected character %q", c)
	}
	n, end, err := r.object()
	switch {
	case errors.Is(err, errTooLarge) || err == nil && n > r.limit:
		return nil, tooLarge(r.at, r.limit)
	case errors.Is(err, io.EOF):
		return nil, bad(r.at, agui.RuleNotJSON, "not JSON: the array ends within the event")
	case err != nil:
		return nil, err
	case end == scanBroken:
		return nil, bad(r.at, agui.RuleNotJSON, "not JSON: the event is broken")
	}
	r.array = afterElement
	return r.skip(n), nil
}

// object returns the length of the object at the start of the rest, up to its end or first fault.
func (r *Reader) object() (n int, end scanEnd, err error) {
	r.scan = objectScanner{open: r.scan.open[:0]}
	for {
		m, end := r.scan.next(r.rest()[n:])
		if n += m; end != scanMore {
			return n, end, nil
		}
		if err := r.fill(); err != nil {
			return n, scanMore, err
		}
	}
}

// nextData returns the data of the next server-sent event.
func (r *Reader) nextData() ([]byte, error) {
	for !r.ended {
		p, err := r.sse.Next()
		if errors.Is(err, io.EOF) {
			p, r.ended = r.sse.Rest(), true
		} else if err != nil {
			return nil, err
		}
		skipped := r.cut
		r.at, r.cut = p.Line, p.Partial
		name, isStrange := "", false
		if r.Strict {
			name, isStrange = strange(p.Raw)
		}
		switch {
		case skipped:
		case p.Err != nil:
			return nil, p.Err
		case p.Partial || p.Over:
			return nil, tooLarge(p.Line, r.limit).andMore()
		case isStrange:
			return nil, bad(p.Line, agui.RuleNotJSON, "%.80q is not a line of SSE", name)
		case p.Data == nil:
		case r.any.is:
			return onOneLine(p.Data), nil
		case string(bytes.Trim(p.Data, Space)) == "[DONE]":
			return nil, bad(p.Line, ReasonDone, "[DONE] is no AG-UI event (the official client fails on it): end the body instead").andMore()
		default:
			return p.Data, nil
		}
	}
	return nil, r.endOfData()
}

// skipSpace skips white space and returns the byte after it.
func (r *Reader) skipSpace(space string) (byte, error) {
	for {
		rest := r.rest()
		r.skip(len(rest) - len(bytes.TrimLeft(rest, space)))
		if rest = r.rest(); len(rest) > 0 {
			return rest[0], nil
		}
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
}

// skip takes n bytes and counts their lines.
func (r *Reader) skip(n int) []byte {
	taken := r.take(n)
	if r.form >= Any {
		r.any.look(taken)
	}
	r.line += int64(bytes.Count(taken, []byte{'\n'}))
	return taken
}
