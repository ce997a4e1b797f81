package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	sse "github.com/tmaxmax/go-sse"
)

// LiveEvent is an event of a live stream.
type LiveEvent struct {
	// Position is where it lies; "" of what a stream puts before its first event, so that a reader can join.
	Position string
	// Data is the AG-UI event, on one line.
	Data []byte
}

// The pauses before a live stream is asked for again, rising from the first to the last while nothing comes.
const (
	followPause    = 500 * time.Millisecond
	maxFollowPause = 10 * time.Second
)

// Follow calls f with the events of a live stream of the query stage, in their order and each once: with what there is, then with what comes. It goes on
// where it was when a stream ends or breaks off, and when the server goes away for a time; away (nil: nobody) is told why, once each time. It returns nil once
// there is nothing more to come, else f's error, that of the context, or the server's refusal.
func (c *Client) Follow(ctx context.Context, path string, f func(LiveEvent) error, away func(error)) error {
	s := &following{client: c, path: path, f: f}
	pause, told := followPause, false
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
		case errors.Is(err, ErrUnreachable) && !s.answered: // it may never have been there
			return err
		case errors.As(err, &refused) && refused.Status != http.StatusServiceUnavailable && refused.Status != http.StatusTooManyRequests && refused.Status != http.StatusBadGateway && refused.Status != http.StatusGatewayTimeout:
			return err
		case came:
			pause, told = followPause, false
		}
		if err != nil && !told && away != nil {
			away(err)
			told = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, maxFollowPause)
	}
}

// errNothingMore is the server's answer to an id behind which nothing can come.
var errNothingMore = errors.New("there is nothing more")

// following is a live stream that is read in one connection after another.
type following struct {
	client *Client
	path   string
	f      func(LiveEvent) error
	// last is the id behind which the next connection begins; "" is none.
	last string
	// answered: a connection was.
	answered bool
	// failed is f's error.
	failed error
}

// read reads one connection to its end, and reports whether an event came.
func (s *following) read(ctx context.Context) (came bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.client.base+s.path, nil)
	if err != nil {
		return false, fmt.Errorf("making request: %w", err)
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
	// What has no id of its own belongs to the next event that has one: cut in between, all of it comes again.
	var before []LiveEvent
	for e, err := range sse.Read(resp.Body, &sse.ReadConfig{MaxEventSize: maxAnswerBytes}) {
		if err != nil {
			return came, fmt.Errorf("reading live stream: it was broken off: %w", err)
		}
		event := LiveEvent{Data: []byte(e.Data)}
		own := e.LastEventID != "" && e.LastEventID != s.last
		switch {
		case e.Data == "": // an id alone
			s.last = e.LastEventID
			continue
		case !own:
			before = append(before, event)
			continue
		}
		event.Position, s.last = e.LastEventID, e.LastEventID
		for _, e := range append(before, event) {
			if s.failed = s.f(e); s.failed != nil {
				return came, s.failed
			}
		}
		before, came = nil, true
	}
	// The event that says that the thread was erased has no id, since nothing can be resumed behind it.
	if n := len(before); n > 0 && isErased(before[n-1].Data) {
		if s.failed = s.f(before[n-1]); s.failed == nil {
			return true, errNothingMore
		}
	}
	return came, nil
}

// isErased reports whether an event ends the stream of a thread that was erased.
func isErased(event []byte) bool {
	var e struct{ Type, Code string }
	return json.Unmarshal(event, &e) == nil && e.Type == "RUN_ERROR" && e.Code == "skein-erased"
}
