package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/skeinhq/skein/pkg/eventstream"
)

// LiveEvent is one event of a live stream.
type LiveEvent struct {
	// Position is the event's position, or "" for the events with which a stream begins for a reader that joins late.
	Position string
	// Data is the AG-UI event, on one line.
	Data []byte
}

// The pauses between two requests for a live stream double from the first to the last while no event comes.
const (
	followPause    = 500 * time.Millisecond
	maxFollowPause = 10 * time.Second
)

// Follow calls f with the events of a live stream of the query stage, in order and each once: existing events first,
// then new ones. It resumes after the last event when a stream ends or breaks, and while the server is unreachable for
// some time. It returns nil when no further event can come, else f's error, the context's error or the server's
// refusal.
//
// The argument note, unless nil, is called with texts for people: the server's comments, such as that Kafka does not answer,
// and why a stream breaks or cannot be opened, at most once until the next event comes.
func (c *Client) Follow(ctx context.Context, path string, f func(LiveEvent) error, note func(text string)) error {
	if note == nil {
		note = func(string) {}
	}
	s := &following{client: c, path: path, f: f, note: note}
	pause, noted := followPause, false
	for {
		came, err := s.read(ctx)
		var refused *Error
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case s.failed != nil:
			return s.failed
		case errors.Is(err, errNothingMore):
			return nil
		case errors.Is(err, ErrUnreachable) && !s.answered: // the address may be wrong
			return err
		case errors.As(err, &refused) && refused.Status != http.StatusServiceUnavailable && refused.Status != http.StatusTooManyRequests &&
			refused.Status != http.StatusBadGateway && refused.Status != http.StatusGatewayTimeout:
			return err
		case came:
			pause, noted = followPause, false
		}
		if err != nil && !noted {
			note(err.Error() + "; trying again")
			noted = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, maxFollowPause)
	}
}

// errNothingMore is the server's answer to an id after which no event can come.
var errNothingMore = errors.New("there is nothing more")

// following reads a live stream over consecutive connections.
type following struct {
	client *Client
	path   string
	f      func(LiveEvent) error
	note   func(string)
	// last is the id after which the next connection resumes; "" is none.
	last string
	// answered is true once the server has answered.
	answered bool
	// failed is f's error.
	failed error
}

// read reads one connection to its end and reports whether an event came.
func (s *following) read(ctx context.Context) (came bool, err error) {
	req, err := s.client.request(ctx, http.MethodGet, s.path, nil, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Accept", TypeSSE)
	if s.last != "" {
		req.Header.Set("Last-Event-ID", s.last)
	}
	resp, err := s.client.do(ctx, req)
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }() // read only: nothing is lost if it fails
	s.answered = true
	if resp.StatusCode == http.StatusNoContent {
		return false, errNothingMore
	}
	// Events without an id belong to the next event that has one: if the stream breaks between them, all of them come again.
	var before []LiveEvent
	stream := eventstream.NewSSE(resp.Body, maxAnswerBytes, eventstream.Memory{})
	defer stream.Close()
	for {
		piece, err := stream.Next()
		switch {
		case errors.Is(err, io.EOF):
			return s.ended(before, came)
		case err != nil:
			return came, fmt.Errorf("reading live stream: it was broken off: %w", err)
		case piece.Partial:
			return came, fmt.Errorf("reading live stream: an event has more than %d bytes", maxAnswerBytes)
		}
		id := s.last
		for name, value := range eventstream.Fields(piece.Raw) {
			switch name {
			case "":
				s.comment(string(value))
			case "id":
				id = string(value)
			}
		}
		switch {
		case piece.Data == nil: // an id alone, or comments
			s.last = id
			continue
		case id == s.last:
			before = append(before, LiveEvent{Data: bytes.Clone(piece.Data)})
			continue
		}
		s.last = id
		for _, e := range append(before, LiveEvent{Position: id, Data: bytes.Clone(piece.Data)}) {
			if s.failed = s.f(e); s.failed != nil {
				return came, s.failed
			}
		}
		before, came = nil, true
	}
}

// ended handles the end of a connection, given the events that have no id.
func (s *following) ended(before []LiveEvent, came bool) (bool, error) {
	// The event of an erasure has no id, since a stream cannot resume after it.
	if n := len(before); n > 0 && isErased(before[n-1].Data) {
		if s.failed = s.f(before[n-1]); s.failed == nil {
			return true, errNothingMore
		}
	}
	return came, nil
}

// maxComment bounds a comment in bytes; the rest of a longer one is left out.
const maxComment = 500

// resumes is the end of comments that the server writes before it closes a connection. Follow resumes, so they are left out.
const resumes = "; resume from the last id"

// comment passes a comment of the server to note, unless it is a heartbeat or ends with resumes.
func (s *following) comment(text string) {
	if text = strings.TrimSpace(text[:min(len(text), maxComment)]); text != "" && !strings.HasSuffix(text, resumes) {
		s.note("server: " + text)
	}
}

// isErased reports whether an event ends the stream of a thread that was erased.
func isErased(event []byte) bool {
	var e struct{ Type, Code string }
	return json.Unmarshal(event, &e) == nil && e.Type == "RUN_ERROR" && e.Code == "skein-erased"
}
