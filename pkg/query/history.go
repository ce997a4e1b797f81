package query

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// historyAnswer is what the official client holds at the end of a run, or, while the run is open, at
// the point up to which its record tells it.
type historyAnswer struct {
	ThreadID string        `json:"threadId"`
	RunID    string        `json:"runId"`
	Status   record.Status `json:"status"`
	// Basis says what the messages rest on.
	Basis lineage.Basis `json:"basis"`
	badges
	// Error is what the run's RUN_ERROR says; nil where it has none.
	Error *runFailure `json:"error,omitempty"`
	// Interrupts are open at the run's end, as they came: what the run waits for.
	Interrupts []json.RawMessage `json:"interrupts,omitempty"`
	// Messages are the page's; From is the index of its first one in the history of Total.
	Messages []agui.Message `json:"messages"`
	From     int            `json:"from"`
	Total    int            `json:"total"`
	// State is always there; {} if none was set.
	State json.RawMessage `json:"state"`
	// Forks are the points where the thread branches along the run's chain, from the root on: what a branch picker needs.
	Forks []fork `json:"forks"`
	// Through is the last event that is in this history.
	Through   record.Position `json:"through"`
	IndexedTo record.Position `json:"indexedTo"`
}

// runFailure is why a run failed, in the agent's words.
type runFailure struct {
	Message agui.String `json:"message"`
	Code    agui.String `json:"code,omitempty"`
}

// failureOf returns what a terminal event says of a failure, or nil.
func failureOf(terminal json.RawMessage) *runFailure {
	var e struct {
		Type agui.Type `json:"type"`
		runFailure
	}
	if json.Unmarshal(terminal, &e) != nil || e.Type != agui.RunError {
		return nil // none, or one of another form, which says nothing
	}
	return &e.runFailure
}

// history answers with the history of the run in the path or, where it names none, of the thread's
// tip with the latest start.
func (c *call) history() error {
	page, err := c.page()
	if err != nil {
		return err
	}
	v, graph, h, err := c.restoreOrTip()
	if err != nil {
		return err
	}
	a := historyAnswer{
		ThreadID: h.run.ThreadID, RunID: h.run.RunID, Status: h.run.Status,
		Basis: graph.Basis(h.run.RunID), badges: h.badges, State: h.State,
		Error: failureOf(h.run.Terminal), Interrupts: h.run.Interrupts,
		Through:   record.Position{Partition: h.run.Raw.Partition, Offset: h.run.Raw.Next - 1},
		IndexedTo: v.indexedTo,
	}
	if !wantsEvents(c.R) {
		a.Forks = forksOf(graph, v.runs, h.run.RunID, h.Messages, h.own)
	}
	c.W.Header().Set(headerIndexedTo, v.indexedTo.String())
	c.W.Header().Add("Vary", "Accept")
	tag := ""
	if h.run.Status.Sealed() && v.status == http.StatusOK {
		if tag, err = c.entityTag(h, a.Forks); err != nil {
			return err
		}
		c.W.Header().Set("ETag", tag)
	}
	if wantsEvents(c.R) {
		if page.set {
			return badRequest("limit and before page the JSON form; the event stream is always whole")
		}
		if notModified(c, tag) {
			return nil
		}
		if err := c.weigh(h.Messages, h.State); err != nil {
			return err
		}
		return c.events(v.status, h)
	}
	if notModified(c, tag) {
		return nil
	}
	a.Total = len(h.Messages)
	a.From, a.Messages = page.of(h.Messages)
	if err := c.weigh(a.Messages, a.State); err != nil {
		return err
	}
	return c.json(v.status, a)
}

// messagePage is the part of a history that is asked for: the last limit messages before an index.
type messagePage struct {
	set           bool
	limit, before int
}

func (c *call) page() (messagePage, error) {
	p := messagePage{set: c.Query.Has("limit") || c.Query.Has("before")}
	var err error
	if p.limit, err = c.number("limit", math.MaxInt32, 1, math.MaxInt32); err != nil {
		return p, err
	}
	p.before, err = c.number("before", math.MaxInt32, 0, math.MaxInt32)
	return p, err
}

// of returns the page and the index of its first message.
func (p messagePage) of(all []agui.Message) (int, []agui.Message) {
	end := min(p.before, len(all))
	from := max(end-p.limit, 0)
	return from, list(all[from:end])
}

// entityTag identifies a sealed history. It is weak: the same conversation may have other bytes (indexedTo,
// compression). A sealed record and the records that it is based on change only if the thread is folded again, which
// rewrites all records based on one that changes. Forks do change: later runs may branch from its chain.
func (c *call) entityTag(h restored, forks []fork) (string, error) {
	form := "events"
	if !wantsEvents(c.R) {
		text, err := json.Marshal(forks)
		if err != nil {
			return "", fmt.Errorf("naming a history: %w", err)
		}
		form = "json-" + record.SHA256(text)[:16]
	}
	return fmt.Sprintf(`W/"%d-%d-%s-%s-%s"`, h.run.Raw.Partition, h.run.Version, form, c.Query.Get("limit"), c.Query.Get("before")), nil
}

// notModified answers 304 where the caller has the history already.
func notModified(c *call, tag string) bool {
	if tag == "" {
		return false
	}
	for _, have := range strings.Split(strings.Join(c.R.Header.Values("If-None-Match"), ","), ",") {
		if have = strings.TrimSpace(have); have == tag || have == "*" {
			c.W.Header().Set("Cache-Control", "private, no-cache")
			c.W.WriteHeader(http.StatusNotModified)
			return true
		}
	}
	return false
}

// wantsEvents reports whether the caller asks for an event stream.
func wantsEvents(r *http.Request) bool {
	for _, accept := range r.Header.Values("Accept") {
		for _, one := range strings.Split(accept, ",") {
			media, _, _ := strings.Cut(one, ";")
			if strings.EqualFold(strings.TrimSpace(media), "text/event-stream") {
				return true
			}
		}
	}
	return false
}

// events answers with the AG-UI events that rebuild the history in a stock client: RUN_STARTED,
// MESSAGES_SNAPSHOT, STATE_SNAPSHOT and the terminal event. The stream of an open run ends after the
// snapshots: there is no terminal event that would be true.
func (c *call) events(status int, h restored) error {
	started := h.run.Started
	if started == nil {
		var err error
		if started, err = marshal(map[string]string{
			"type": "RUN_STARTED", "threadId": h.run.ThreadID, "runId": h.run.RunID,
		}); err != nil {
			return err
		}
	}
	messages, err := marshal(struct {
		Type     agui.Type      `json:"type"`
		Messages []agui.Message `json:"messages"`
	}{"MESSAGES_SNAPSHOT", list(h.Messages)})
	if err != nil {
		return err
	}
	state, err := marshal(struct {
		Type     agui.Type       `json:"type"`
		Snapshot json.RawMessage `json:"snapshot"`
	}{"STATE_SNAPSHOT", h.State})
	if err != nil {
		return err
	}
	var b bytes.Buffer
	list := []json.RawMessage{started, messages, state}
	if h.run.Status != record.StatusRunning && h.run.Terminal != nil {
		list = append(list, h.run.Terminal)
	}
	for i, ev := range list {
		if i == len(list)-1 {
			// A reader that goes on from here has seen all up to this event.
			fmt.Fprintf(&b, "id: %s\n", record.Position{Partition: h.run.Raw.Partition, Offset: h.run.Raw.Next - 1})
		}
		fmt.Fprintf(&b, "data: %s\n\n", oneLine(ev))
	}
	c.send(status, "text/event-stream", b.Bytes())
	return nil
}

// marshal writes JSON with raw parts as they are.
func marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encoding event: %w: %w", errBroken, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// oneLine returns JSON without line breaks, which may stand only between its tokens: an SSE field
// ends at one.
func oneLine(b json.RawMessage) []byte {
	return bytes.ReplaceAll(bytes.ReplaceAll(b, []byte{'\n'}, []byte{' '}), []byte{'\r'}, []byte{' '})
}
