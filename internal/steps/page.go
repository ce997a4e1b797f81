package steps

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/timeline"
)

// Step is one record of a run and its change. Step 0 is the run's start.
type Step struct {
	N int `json:"n"`
	// Position and Time are nil for a start without an input record.
	Position *record.Position `json:"position"`
	Time     *time.Time       `json:"time"`
	Kind     record.Kind      `json:"kind"`
	Type     agui.Type        `json:"type"`
	Outcome  fold.Outcome     `json:"outcome"`
	// Event is the record's value. If the value is not JSON, it is in Bytes.
	Event  json.RawMessage `json:"event"`
	Bytes  []byte          `json:"bytes"`
	Change timeline.Change `json:"change"`
}

// Page has consecutive steps of a run, and messages and state before the first one.
type Page struct {
	ThreadID string        `json:"threadId"`
	RunID    string        `json:"runId"`
	Status   record.Status `json:"status"`
	// Total is the number of the run's last step so far.
	Total int `json:"total"`
	// LateError came after that step.
	LateError *record.LateError `json:"lateError"`
	Messages  []agui.Message    `json:"messages"`
	State     json.RawMessage   `json:"state"`
	Steps     []Step            `json:"steps"`
	// Next is the first step of the next page; nil at the end.
	Next *int `json:"next"`
}

// Moment is a step, and messages and state after it.
type Moment struct {
	Step
	lineage.History
}

// Source returns up to limit steps of a run, from the step numbered from.
type Source func(ctx context.Context, from, limit int) (*Page, error)

// Of returns a Source that reads a run's steps from the HTTP API. path is a client.RunPath, or a client.ThreadPath for the thread's tip.
func Of(c *client.Client, path string) Source {
	return func(ctx context.Context, from, limit int) (*Page, error) {
		body, err := c.Get(ctx, path+"/state", url.Values{"from": {strconv.Itoa(from)}, "limit": {strconv.Itoa(limit)}})
		if err != nil {
			return nil, err
		}
		var p Page
		if err := json.Unmarshal(body, &p); err != nil {
			return nil, fmt.Errorf("decoding steps: %w", err)
		}
		return &p, nil
	}
}

// Moments returns messages and state after each step of the page. Moments share unchanged values.
func (p *Page) Moments() ([]Moment, error) {
	at := lineage.History{Messages: p.Messages, State: p.State}
	moments := make([]Moment, len(p.Steps))
	for i, s := range p.Steps {
		var err error
		if at, err = after(at, s.Change); err != nil {
			return nil, fmt.Errorf("reading step %d: %w", s.N, err)
		}
		moments[i] = Moment{s, at}
	}
	return moments, nil
}
