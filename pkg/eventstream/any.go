package eventstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
)

// anyState is the state of a Reader whose form was Any.
type anyState struct {
	is   bool  // the form was Any
	from int64 // the line on which the server-sent events begin
	// inLine: bytes other than white space were taken since the last line feed. lost: an object was broken, and its rest
	// is skipped up to a line that begins another object.
	inLine, lost bool
}

// look updates inLine for the bytes taken.
func (a *anyState) look(taken []byte) {
	if i := bytes.LastIndexByte(taken, '\n'); i >= 0 {
		taken, a.inLine = taken[i+1:], false
	}
	a.inLine = a.inLine || len(bytes.TrimLeft(taken, Space)) > 0
}

// begin detects the form from the next line that is not empty. If this line fits no form, begin returns it as an event
// and detects the form from a later line, which can then be only NDJSON or objects that span lines.
func (r *Reader) begin() ([]byte, error) {
	r.any.is = true
	c, err := r.skipSpace(Space)
	if err != nil {
		return nil, err
	}
	r.at = r.line
	switch {
	case c == '{':
		return r.firstObject()
	case r.count > 0:
	case c == '[':
		r.form = Array
		return nil, nil
	case r.looksServerSent():
		r.any.from = r.line
		r.serverSent()
		return nil, nil
	}
	return r.nextLine()
}

// firstObject decides between NDJSON and objects that span lines or share a line, and returns the first event.
func (r *Reader) firstObject() ([]byte, error) {
	n, end, err := r.object()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	spans := bytes.IndexByte(r.rest()[:n], '\n') >= 0
	for end == scanWhole && !spans {
		if after := bytes.TrimLeft(r.rest()[n:], " \t"); len(after) > 0 {
			spans = after[0] == '{'
			break
		}
		if err := r.fill(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
	}
	if spans {
		r.form, r.any.lost = objects, end == scanBroken
		return onOneLine(r.skip(n)), nil
	}
	r.form = NDJSON
	return r.nextLine()
}

// nextObject returns the bytes of the next object up to its end or to its first fault. If a line does not begin an
// object, nextObject returns the rest of the line.
func (r *Reader) nextObject() ([]byte, error) {
	c, err := r.skipSpace(Space)
	for err == nil && r.any.lost && (c != '{' || r.any.inLine) {
		if _, err = r.rawLine(); err == nil {
			c, err = r.skipSpace(Space)
		}
	}
	if err != nil {
		return nil, err
	}
	if c != '{' {
		return r.nextLine()
	}
	r.at = r.line
	n, end, err := r.object()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	r.any.lost = end == scanBroken
	return onOneLine(r.skip(n)), nil
}

// ServerSent detects server-sent events in a stream of form Any. It returns a reader of the stream's bytes from the
// first line that is not empty, and the number of this line. For other streams, the reader is nil. Call it before Next.
func (r *Reader) ServerSent() (stream io.Reader, line int64, err error) {
	r.began = true
	if err = r.skipMark(); err == nil {
		_, err = r.skipSpace("\r\n")
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil, 0, nil
	case err != nil || !r.looksServerSent():
		return nil, 0, err
	}
	return io.MultiReader(bytes.NewReader(r.rest()), r.r), r.line, nil
}

// fields lists how a line of server-sent events may begin.
var fields = []string{"data:", "event:", "id:", "retry:", ":"}

// looksServerSent reports whether the rest begins with a field or a comment. It may wait for a few bytes, but not for
// more than the shortest event has.
func (r *Reader) looksServerSent() bool {
	for len(r.rest()) < len("event:") && r.fill() == nil {
	}
	return slices.ContainsFunc(fields, func(f string) bool { return bytes.HasPrefix(r.rest(), []byte(f)) })
}

// strange returns the name of the first line that is not a field of server-sent events, and whether there is one.
func strange(raw []byte) (string, bool) {
	for name := range Fields(raw) {
		if !slices.Contains(fields, name+":") {
			return name, true
		}
	}
	return "", false
}

// endOfData returns the error at the end of server-sent events: io.EOF, unless a stream of form Any had no event.
func (r *Reader) endOfData() error {
	if r.any.is && r.count == 0 {
		return bad(r.any.from, agui.RuleNotJSON, "the stream looks like SSE, but no line has data")
	}
	return io.EOF
}

// onOneLine compacts JSON that spans lines. It returns anything else unchanged.
func onOneLine(text []byte) []byte {
	var line bytes.Buffer
	if bytes.IndexByte(text, '\n') < 0 && bytes.IndexByte(text, '\r') < 0 || json.Compact(&line, text) != nil {
		return text
	}
	return line.Bytes()
}
