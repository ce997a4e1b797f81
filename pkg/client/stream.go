package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"

	"github.com/skeinhq/skein/pkg/eventstream"
)

// LiveEvent is one event of a live stream.
type LiveEvent struct {
	// Position is the event's position, or "" for the events with which a stream begins for a reader that joins late.
	Position string
	// Data is the AG-UI event, on one line.
	Data []byte
}

// Stream iterates over the events of a run, each once and in order: those so far, then new ones as they come, to the run's end. If run is
// "", it goes on with the thread's next runs, and does not end. A thread or run that does not exist yet is waited for.
//
// If a connection breaks or the server goes away, it resumes after the last event, until ctx ends. The last element has an error if it
// ends by one: that of ctx, or the server's refusal.
func (c *Client) Stream(ctx context.Context, thread, run string) iter.Seq2[LiveEvent, error] {
	return func(yield func(LiveEvent, error) bool) {
		s := &streaming{client: c, path: path(thread, run) + "/stream", yield: yield}
		t := tries{client: c, forever: true}
		for {
			came, err := s.read(ctx)
			if s.over {
				return
			}
			if came {
				t = tries{client: c, forever: true}
			}
			if err := t.wait(ctx, err); err != nil {
				yield(LiveEvent{}, err)
				return
			}
		}
	}
}

// StopRequested waits until somebody asks that a run be stopped, and is then true; it is false once the run has ended. An agent that
// publishes its events and hears of it ends its run with the outcome cancelled, within the 3 s for which CancelRun waits.
func (c *Client) StopRequested(ctx context.Context, thread, run string) (asked bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hearing := c.Noting(func(text string) {
		if text == fromServer+"stop requested" { // the query stage's stopRequested
			asked = true
			cancel()
		}
	})
	for _, failed := range hearing.Stream(ctx, thread, run) {
		err = failed
	}
	if asked {
		return true, nil
	}
	return false, err
}

// streaming reads a live stream over consecutive connections.
type streaming struct {
	client *Client
	path   string
	yield  func(LiveEvent, error) bool
	// last is the id after which the next connection resumes; "" is none.
	last string
	// over is true once no further event can come, or the caller wants none.
	over bool
}

// read reads one connection to its end and reports whether an event came.
func (s *streaming) read(ctx context.Context) (came bool, err error) {
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
	if resp.StatusCode == http.StatusNoContent {
		s.over = true
		return false, nil
	}
	// Events without an id belong to the next event that has one: if the stream breaks between them, all of them come again.
	var before []LiveEvent
	stream := eventstream.NewSSE(resp.Body, maxAnswerBytes, eventstream.Memory{})
	defer stream.Close()
	for {
		piece, err := stream.Next()
		switch {
		case errors.Is(err, io.EOF):
			s.ended(before)
			return came, nil
		case err != nil:
			return came, brokenOff(ctx, err)
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
			if s.over = !s.yield(e, nil); s.over {
				return came, nil
			}
		}
		before, came = nil, true
	}
}

// ended handles the end of a connection, given the events that have no id.
func (s *streaming) ended(before []LiveEvent) {
	// The event of an erasure has no id, since a stream cannot resume after it.
	if n := len(before); n > 0 && isErased(before[n-1].Data) {
		s.yield(before[n-1], nil)
		s.over = true
	}
}

// maxComment bounds a comment in bytes; the rest of a longer one is left out.
const maxComment = 500

// fromServer begins the texts of Noting that are the server's.
const fromServer = "server: "

// resumes is the end of comments that the server writes before it closes a connection. Stream resumes, so they are left out.
const resumes = "; resume from the last id"

// comment passes a comment of the server to note, unless it is a heartbeat or ends with resumes.
func (s *streaming) comment(text string) {
	if text = strings.TrimSpace(text[:min(len(text), maxComment)]); text != "" && !strings.HasSuffix(text, resumes) {
		s.client.note(fromServer + text)
	}
}

// isErased reports whether an event ends the stream of a thread that was erased.
func isErased(event []byte) bool {
	var e struct{ Type, Code string }
	return json.Unmarshal(event, &e) == nil && e.Type == "RUN_ERROR" && e.Code == "skein-erased"
}
