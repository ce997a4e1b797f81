package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// defaultPatience is longer than a restart of the server takes.
const defaultPatience = 2 * time.Minute

// WithPatience sets for how long a call is repeated while the server refuses it for now, or is away after it has answered before.
// The default is two minutes; 0 means never. A Stream goes on without this bound.
func WithPatience(patience time.Duration) Option {
	return func(c *Client) { c.patience = patience }
}

// Noting returns a client that calls note with texts for people: why a call is repeated, and comments of the server in a stream, such as
// that Kafka does not answer. It shares the connections of c.
func (c *Client) Noting(note func(text string)) *Client {
	noting := *c
	noting.note = note
	return &noting
}

// The pauses between two tries double from the first to the last, unless the server says how long to wait.
const (
	firstPause = 500 * time.Millisecond
	maxPause   = 10 * time.Second
)

// tries are the tries of one call.
type tries struct {
	client *Client
	// forever repeats the call until its context ends.
	forever bool
	// acts means that a call may have had an effect although no answer came: it is repeated only if the server refused it.
	acts bool

	pause  time.Duration // the last one
	failed time.Time     // when the first try failed
	noted  bool
}

// wait returns nil when it is time for the next try, and the error of the last one if there is to be none.
// If a stream ended without an error, it is nil.
func (t *tries) wait(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var refused *Error
	switch {
	case err == nil:
	case errors.As(err, &refused):
		if !refused.temporary(t.acts) {
			return err
		}
	case t.acts, !errors.Is(err, ErrUnreachable), !t.client.answered.Load(): // the address may be wrong
		return err
	}
	now := time.Now()
	if t.pause = min(2*t.pause, maxPause); t.failed.IsZero() {
		t.pause, t.failed = firstPause, now
	}
	if refused != nil && refused.RetryAfter > 0 {
		t.pause = refused.RetryAfter
	}
	if tried := now.Sub(t.failed); !t.forever && tried+t.pause > t.client.patience {
		if tried < firstPause {
			return err
		}
		return fmt.Errorf("tried again for %v: %w", tried.Round(time.Second), err)
	}
	if err != nil && !t.noted {
		t.client.note(err.Error() + "; trying again")
		t.noted = true
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(t.pause):
		return nil
	}
}

// again calls f until it succeeds or the tries are used up.
func again[T any](ctx context.Context, t *tries, f func() (T, error)) (T, error) {
	for {
		v, err := f()
		if err == nil {
			return v, nil
		}
		if err = t.wait(ctx, err); err != nil {
			return v, err
		}
	}
}

// temporary reports whether the same call may succeed later. A gateway's refusal does not say whether the server acted.
func (e *Error) temporary(acts bool) bool {
	switch e.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return true
	case http.StatusTooEarly, http.StatusBadGateway, http.StatusGatewayTimeout:
		return !acts
	}
	return false
}
