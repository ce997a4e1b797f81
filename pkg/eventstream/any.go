package eventstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
)

// anyState is what a reader of Any remembers of its stream.
type anyState struct {
	is   bool  // the form was Any
	from int64 // the line where server-sent events begin
	// inLine: more than white space was taken since the last line feed. lost: an object was broken, and its rest is passed over, up to a line
	// that begins another one.
	inLine, lost bool
}

// look notes bytes that are taken.
func (a *anyState) look(taken []byte) {
	if i := bytes.LastIndexByte(taken, '\n'); i >= 0 {
		taken, a.inLine = taken[i+1:], false
	}
	a.inLine = a.inLine || len(bytes.TrimLeft(taken, Space)) > 0
}

// begin finds the form from the next line that is not empty. It returns that line if it is of no form: NDJSON, or objects that span lines,
// may follow it.
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

// firstObject tells objects that span lines, or share one, from NDJSON.
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

// nextObject returns the next object up to its end or to where it is broken, or the rest of a line that is none.
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

// ServerSent returns the bytes of a stream of Any that looks like server-sent events, from its first line that is not empty on, and the
// number of that line; else nil. Call it before Next.
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

// fields are the beginnings of lines of server-sent events.
var fields = []string{"data:", "event:", "id:", "retry:", ":"}

// looksServerSent reports whether the rest begins with a field or a comment. An event that it might wait for is longer.
func (r *Reader) looksServerSent() bool {
	for len(r.rest()) < len("event:") && r.fill() == nil {
	}
	return slices.ContainsFunc(fields, func(f string) bool { return bytes.HasPrefix(r.rest(), []byte(f)) })
}

// strange returns the name of a line that is no field of server-sent events.
func strange(raw []byte) (string, bool) {
	for name := range Fields(raw) {
		if !slices.Contains(fields, name+":") {
			return name, true
		}
	}
	return "", false
}

// endOfData returns the error of a stream of server-sent events that has ended.
func (r *Reader) endOfData() error {
	if r.any.is && r.count == 0 {
		return bad(r.any.from, agui.RuleNotJSON, "the stream looks like SSE, but no line has data")
	}
	return io.EOF
}

// onOneLine takes the layout out of JSON that spans lines. Anything else stays as it is.
func onOneLine(text []byte) []byte {
	var line bytes.Buffer
	if bytes.IndexByte(text, '\n') < 0 && bytes.IndexByte(text, '\r') < 0 || json.Compact(&line, text) != nil {
		return text
	}
	return line.Bytes()
}
