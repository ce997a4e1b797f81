package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ErrUnreachable is returned if no answer came, or not all of it: the address is wrong, or the server is not running, or it has ended.
var ErrUnreachable = errors.New("unreachable")

// ErrNoReadURL and ErrNoPublishURL are returned by calls of a stage of which the client has no address.
var (
	ErrNoReadURL    = errors.New("the address of the query stage is missing")
	ErrNoPublishURL = errors.New("the address of the ingest stage is missing")
)

// Error is an unsuccessful answer: a problem document (RFC 9457), or another body in its place.
type Error struct {
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	// Reason identifies the kind of problem; it may be empty.
	Reason string `json:"reason"`
	// ServedBy is the stage that serves the request, if the request was sent to the other one (status 421). URL is that stage's
	// address, if the server knows it.
	ServedBy string `json:"servedBy"`
	URL      string `json:"url"`
	// Ack counts the events of a publish that were accepted before the error; Accepted is -1 if the answer does not have
	// it.
	Ack
	// Line is the line of the body that was refused, from 1; 0 if the answer names none.
	Line int64 `json:"line"`
	// RetryAfter is how long the server asks to wait before the same call is made again; 0 if it does not say so.
	RetryAfter time.Duration `json:"-"`
	// Body is the answer's body; that of a 425 is the answer so far.
	Body []byte `json:"-"`
	// Method is the method of the request that was refused.
	Method string `json:"-"`
	// NoRoute is true for a 404 that is not about a thread or run: no Skein stage answered, or its version has no such path.
	NoRoute bool `json:"-"`
}

// Error implements error.
func (e *Error) Error() string {
	text := cmp.Or(e.Detail, e.Title, http.StatusText(e.Status))
	if e.Line > 0 && !strings.Contains(text, "line") && !strings.HasPrefix(text, "event ") {
		text = fmt.Sprintf("line %d: %s", e.Line, text)
	}
	return fmt.Sprintf("%s (HTTP %d)", text, e.Status)
}

// IsNotFound reports whether err is Skein's answer that there is no such thread, run or branch, or no longer: it was erased.
func IsNotFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Status == http.StatusNotFound && !e.NoRoute || e.Status == http.StatusGone && e.Reason == "erased")
}

// brokenOff is the error of an answer that ended too early.
func brokenOff(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("reading answer: it was broken off (%w: %w)", ErrUnreachable, err)
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
	e.NoRoute = resp.StatusCode == http.StatusNotFound && (e.Reason == "no-path" ||
		resp.Header.Get("Content-Type") != "application/problem+json")
	e.Body = body
	e.Status, e.Method = resp.StatusCode, method
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}
