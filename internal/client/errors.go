package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// ErrUnreachable says that no answer came: wrong address, or the server is not running.
var ErrUnreachable = errors.New("unreachable")

// Error is an answer that is not a success: a problem document (RFC 9457), or what stood in its
// place.
type Error struct {
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	// Ack is how far the events of a publish came before the error; Accepted is -1 where the
	// answer does not say.
	Ack
	// Line is the line of the body that was refused, from 1; 0 where the answer names none.
	Line int64 `json:"line"`
	// Body is the answer's body as it came: 425 gives what there is so far.
	Body []byte `json:"-"`
	// Method is the method of the request that was refused.
	Method string `json:"-"`
}

// Error implements error.
func (e *Error) Error() string {
	text := e.Detail
	if text == "" {
		text = e.Title
	}
	if text == "" {
		text = http.StatusText(e.Status)
	}
	if e.Line > 0 && !strings.Contains(text, "line") {
		text = fmt.Sprintf("line %d: %s", e.Line, text)
	}
	return fmt.Sprintf("%s (HTTP %d)", text, e.Status)
}

// IsNotFound reports whether err is the server's answer that there is no such thing.
func IsNotFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}

// maxProblemBytes bounds what is read of an error's body.
const maxProblemBytes = 64 << 10

func readError(method string, resp *http.Response) error {
	e := &Error{}
	e.Accepted = -1
	limit, data := int64(maxProblemBytes), resp.Header.Get("Content-Type") == typeJSON
	if data {
		limit = maxAnswerBytes
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	if err != nil {
		return fmt.Errorf("reading answer (HTTP %d): %w", resp.StatusCode, err)
	}
	if json.Unmarshal(body, e) != nil {
		// Not a problem document: something in between answered, such as a proxy. Its first
		// line is the best there is.
		line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
		*e = Error{Detail: line}
		e.Accepted = -1
		if data {
			e.Detail = "" // it is no sentence
		}
	}
	e.Body = body
	e.Status, e.Method = resp.StatusCode, method
	return e
}
