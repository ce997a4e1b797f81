package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// ErrUnreachable is returned if no answer came: the address is wrong, or the server is not running.
var ErrUnreachable = errors.New("unreachable")

// Error is an unsuccessful answer: a problem document (RFC 9457), or another body in its place.
type Error struct {
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	// Ack counts the events of a publish that were accepted before the error; Accepted is -1 if the answer does not have
	// it.
	Ack
	// Line is the line of the body that was refused, from 1; 0 if the answer names none.
	Line int64 `json:"line"`
	// Body is the answer's body; that of a 425 is the answer so far.
	Body []byte `json:"-"`
	// Method is the method of the request that was refused.
	Method string `json:"-"`
}

// Error implements error.
func (e *Error) Error() string {
	text := cmp.Or(e.Detail, e.Title, http.StatusText(e.Status))
	if e.Line > 0 && !strings.Contains(text, "line") {
		text = fmt.Sprintf("line %d: %s", e.Line, text)
	}
	return fmt.Sprintf("%s (HTTP %d)", text, e.Status)
}

// IsNotFound reports whether err is an answer with status 404.
func IsNotFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}

// maxProblemBytes bounds how much of an error's body is read.
const maxProblemBytes = 64 << 10

func readError(method string, resp *http.Response) error {
	e := &Error{Ack: Ack{Accepted: -1}}
	limit, data := int64(maxProblemBytes), resp.Header.Get("Content-Type") == typeJSON
	if data {
		limit = maxAnswerBytes
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	if err != nil {
		return fmt.Errorf("reading answer (HTTP %d): %w", resp.StatusCode, err)
	}
	if json.Unmarshal(body, e) != nil {
		// Not a problem document: something in between answered, such as a proxy. Its first line has to do.
		*e = Error{Ack: Ack{Accepted: -1}}
		if !data { // else it is no sentence
			e.Detail, _, _ = strings.Cut(strings.TrimSpace(string(body)), "\n")
		}
	}
	e.Body = body
	e.Status, e.Method = resp.StatusCode, method
	return e
}
