package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"time"

	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/store"
)

// Fetch gets a JSON document of the query stage, decodes it into v unless that is nil, and returns its unchanged text. It repeats the call
// while the server refuses it for now (see WithPatience). path is as for Get.
func (c *Client) Fetch(ctx context.Context, path string, query url.Values, v any) ([]byte, error) {
	body, err := again(ctx, &tries{client: c}, func() ([]byte, error) { return c.Get(ctx, path, query) })
	if err != nil || v == nil {
		return body, err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return nil, fmt.Errorf("decoding answer: %w", err)
	}
	return body, nil
}

// fetch is Fetch for a type.
func fetch[T any](ctx context.Context, c *Client, path string, query url.Values) (v T, err error) {
	_, err = c.Fetch(ctx, path, query, &v)
	return v, err
}

// List iterates over the elements of a list of the query stage, page by page: "/v1/threads" has them in its member "threads". The
// parameter limit is the size of a page. The last element has an error if it ends by one.
func (c *Client) List(ctx context.Context, path, member string, query url.Values) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		q := url.Values{"limit": {"1000"}}
		maps.Copy(q, query)
		for {
			page, err := fetch[map[string]json.RawMessage](ctx, c, path, q)
			var list []json.RawMessage
			if err == nil {
				err = json.Unmarshal(page[member], &list)
			}
			if err != nil {
				yield(nil, fmt.Errorf("reading %s: %w", member, err))
				return
			}
			for _, element := range list {
				if !yield(element, nil) {
					return
				}
			}
			next := ""
			if json.Unmarshal(page["next"], &next) != nil || next == "" { // the last page has none
				return
			}
			q.Set("after", next)
		}
	}
}

// list is List for a type.
func list[T any](elements iter.Seq2[json.RawMessage, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for element, err := range elements {
			var v T
			if err == nil {
				err = json.Unmarshal(element, &v)
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// Thread and Run are elements of lists.
type (
	Thread = store.Thread
	Run    = search.Run
)

// Threads iterates over threads, by id. The query has the parameters of GET /v1/threads, such as prefix and status, and may be nil.
func (c *Client) Threads(ctx context.Context, query url.Values) iter.Seq2[Thread, error] {
	return list[Thread](c.List(ctx, "/v1/threads", "threads", query))
}

// Runs iterates over the runs that meet all conditions of the query, latest first: agent=support, since=24h and so on (docs/search.md).
func (c *Client) Runs(ctx context.Context, query url.Values) iter.Seq2[Run, error] {
	return list[Run](c.List(ctx, "/v1/runs", "runs", query))
}

// History is what an AG-UI client holds at the end of a run, or of an open run so far.
type History struct {
	ThreadID string        `json:"threadId"`
	RunID    string        `json:"runId"`
	Status   record.Status `json:"status"`
	// Basis is what the messages are based on: the run's own input, a certain parent, an inferred one, or none.
	Basis lineage.Basis `json:"basis"`
	Limits
	// Error is the content of the run's RUN_ERROR, or nil.
	Error *RunFailure `json:"error,omitempty"`
	// Interrupts are the AG-UI Interrupts that the run waits for.
	Interrupts []json.RawMessage `json:"interrupts,omitempty"`
	// Messages are those from index From on, of Total; State is {} if none was set. Both are unchanged JSON.
	Messages []json.RawMessage `json:"messages"`
	From     int               `json:"from"`
	Total    int               `json:"total"`
	State    json.RawMessage   `json:"state"`
	// Forks are where the thread branches along the run's ancestors, from the root on: what a branch picker needs.
	Forks []Fork `json:"forks"`
	// Through is the position of the last event in this history, IndexedTo that of the last one that is indexed.
	Through   record.Position `json:"through"`
	IndexedTo record.Position `json:"indexedTo"`
}

// Limits are those of what is known about a run.
type Limits struct {
	// Synthetic: the run's end is not the agent's. Skein made it because the agent had become silent, or the agent's proxy made it.
	Synthetic bool `json:"synthetic,omitempty"`
	// Truncated: contents above the record limit were replaced by references.
	Truncated bool `json:"truncated,omitempty"`
	// RawLost: events expired before they were folded.
	RawLost bool `json:"rawLost,omitempty"`
	// ParentInferred: the agent did not name the parent; Skein inferred it.
	ParentInferred bool `json:"parentInferred,omitempty"`
}

// RunFailure is the message and code of a RUN_ERROR.
type RunFailure struct {
	Message string `json:"message"`
	Code    string `json:"code,omitempty"`
}

// String implements fmt.Stringer.
func (f RunFailure) String() string {
	if f.Code != "" {
		return f.Message + " (" + f.Code + ")"
	}
	return f.Message
}

// Fork is a run of a history that has siblings: other runs of the same parent.
type Fork struct {
	RunID       string `json:"runId"`
	ParentRunID string `json:"parentRunId,omitempty"`
	// Message is the index of the run's first own message in the whole history; nil if it has none, or they are unknown.
	Message *int `json:"message,omitempty"`
	// Index is the run's place among all Total siblings, itself included, by start.
	Index int `json:"index"`
	Total int `json:"total"`
	// Alternatives are the siblings from index From on, RunID included.
	Alternatives []Alternative `json:"alternatives"`
	From         int           `json:"from"`
}

// Alternative is one of the siblings at a fork. TipRunID is the latest run among it and its descendants, whose history is shown when it is
// picked.
type Alternative struct {
	RunID     string        `json:"runId"`
	TipRunID  string        `json:"tipRunId"`
	Status    record.Status `json:"status"`
	StartedAt time.Time     `json:"startedAt"`
}

// History returns the messages and state of a run, or, if run is "", of the thread's tip with the latest start.
func (c *Client) History(ctx context.Context, thread, run string) (History, error) {
	return fetch[History](ctx, c, path(thread, run)+"/history", nil)
}

// Lineage is the runs of a thread and how they descend from each other.
type Lineage struct {
	ThreadID string           `json:"threadId"`
	Runs     []LineageRun     `json:"runs"` // by start
	Branches []lineage.Branch `json:"branches"`
	Spawns   []lineage.Spawn  `json:"spawns"`
	// Tips are the runs without children, TipRunID is the one that started last.
	Tips     []string `json:"tips"`
	TipRunID string   `json:"tipRunId"`
	// Picture is a layout for drawing.
	Picture   json.RawMessage `json:"picture"`
	IndexedTo record.Position `json:"indexedTo"`
}

// LineageRun is a run of a lineage.
type LineageRun struct {
	RunID string `json:"runId"`
	// ClientRunID is the id that the agent gave, if it differs.
	ClientRunID string `json:"clientRunId,omitempty"`
	record.Lineage
	// Rewrote are the ways in which the input departs from the parent's history.
	Rewrote      []string      `json:"rewrote,omitempty"`
	Status       record.Status `json:"status"`
	Agent        string        `json:"agent,omitempty"`
	MessageCount int           `json:"messageCount"`
	StartedAt    time.Time     `json:"startedAt"`
	EndedAt      *time.Time    `json:"endedAt,omitempty"`
	// First is the position of the run's first event.
	First record.Position `json:"first"`
	// DurationMs is the duration by the events' timestamps; nil while the run is open, or if its events have none.
	DurationMs *int64 `json:"durationMs,omitempty"`
	// Row is the index of the row of the picture that shows the run.
	Row int `json:"row"`
	// Stopped: Skein's proxy ended the run on request.
	Stopped bool `json:"stopped,omitempty"`
	Limits
	// Question and Answer are the beginnings of the user's last new message and of the agent's first text. Resumed and Resolution are how
	// the run answers an interrupt.
	Question   string `json:"question,omitempty"`
	Answer     string `json:"answer,omitempty"`
	Resumed    string `json:"resumed,omitempty"`
	Resolution string `json:"resolution,omitempty"`
}

// Lineage returns the runs of a thread.
func (c *Client) Lineage(ctx context.Context, thread string) (Lineage, error) {
	return fetch[Lineage](ctx, c, ThreadPath(thread)+"/lineage", url.Values{"words": {"true"}})
}

// Input is a RunAgentInput. Its parts are unchanged JSON; members that have no field are kept.
type Input struct {
	ThreadID       string            `json:"threadId"`
	RunID          string            `json:"runId"`
	ParentRunID    string            `json:"parentRunId,omitempty"`
	State          json.RawMessage   `json:"state,omitempty"`
	Messages       []json.RawMessage `json:"messages"`
	Tools          []json.RawMessage `json:"tools"`
	Context        []json.RawMessage `json:"context"`
	ForwardedProps json.RawMessage   `json:"forwardedProps"`
	// Resume has an entry for each open interrupt, which cancels it: change it to approve.
	Resume []json.RawMessage `json:"resume,omitempty"`

	others map[string]json.RawMessage
}

// UnmarshalJSON implements json.Unmarshaler.
func (in *Input) UnmarshalJSON(text []byte) error {
	type fields Input
	*in = Input{}
	if err := json.Unmarshal(text, (*fields)(in)); err != nil {
		return err
	}
	if err := json.Unmarshal(text, &in.others); err != nil {
		return err
	}
	for _, name := range []string{"parentRunId", "state", "resume"} { // those that a caller may clear
		delete(in.others, name)
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (in Input) MarshalJSON() ([]byte, error) {
	type fields Input
	text, err := json.Marshal(fields(in))
	if err != nil || in.others == nil {
		return text, err
	}
	all := maps.Clone(in.others)
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// Checkout returns the input from which an agent continues a run, or, if run is "", the thread's tip with the latest start: append a
// message, and send it to the agent. It has a new run id. The argument at selects an earlier point of the run: a step's number, a position,
// "@" and a time, or "start", where the input is the one to repeat the run with; "" is its end.
func (c *Client) Checkout(ctx context.Context, thread, run, at string) (Input, error) {
	return fetch[Input](ctx, c, path(thread, run)+"/checkout", url.Values{"at": {at}})
}

// path is that of a run, or of a thread if run is "".
func path(thread, run string) string {
	if run == "" {
		return ThreadPath(thread)
	}
	return RunPath(thread, run)
}
