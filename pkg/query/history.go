package query

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// historyAnswer holds the messages and state that the official client has at the end of a run, or after the last event of an
// open run that read has followed.
type historyAnswer struct {
	ThreadID string        `json:"threadId"`
	RunID    string        `json:"runId"`
	Status   record.Status `json:"status"`
	// Basis is the evidence for the messages.
	Basis lineage.Basis `json:"basis"`
	badges
	// Error is the content of the run's RUN_ERROR; nil if the run has none.
	Error *runFailure `json:"error,omitempty"`
	// Interrupts are those open at the run's end, unchanged: the run waits for their answers.
	Interrupts []json.RawMessage `json:"interrupts,omitempty"`
	// Messages are those of the page. From is the index of the first one in the whole history, Total the length of that
	// history.
	Messages []agui.Message `json:"messages"`
	From     int            `json:"from"`
	Total    int            `json:"total"`
	// State is always present; {} if none was set.
	State json.RawMessage `json:"state"`
	// Forks are the points where the thread branches along the run's chain, from the root on. A branch picker needs them.
	Forks []client.Fork `json:"forks"`
	// Through is the position of the last event in this history.
	Through   record.Position `json:"through"`
	IndexedTo record.Position `json:"indexedTo"`
}

// runFailure is the agent's own description of why a run failed.
type runFailure struct {
	Message agui.String `json:"message"`
	Code    agui.String `json:"code,omitempty"`
}

// failureOf returns the failure in a terminal event, or nil if it is not a RUN_ERROR.
func failureOf(terminal json.RawMessage) *runFailure {
	var e struct {
		Type agui.Type `json:"type"`
		runFailure
	}
	if json.Unmarshal(terminal, &e) != nil || e.Type != agui.RunError {
		return nil // no terminal event, or one of another form
	}
	return &e.runFailure
}

// history answers with the history of the run in the path. Without a run, it uses the tip of the thread that started
// last.
func (c *call) history() (*answer, error) {
	page, err := c.page()
	if err != nil {
		return nil, err
	}
	events := wantsEvents(c.R)
	if events && page.set {
		return nil, badRequest("limit and before page the JSON form; the event stream is always whole")
	}
	v, graph, h, err := c.restoreOrTip()
	if err != nil {
		return nil, err
	}
	out := &answer{status: v.status, indexedTo: &v.indexedTo, vary: true}
	var forks []client.Fork
	if !events {
		forks = forksOf(graph, v.runs, h.run.RunID, h.Messages, h.own)
	}
	if h.run.Status.Sealed() && v.status == http.StatusOK {
		if out.tag, err = c.entityTag(h, events, forks); err != nil {
			return nil, err
		}
	}
	if events {
		out.contentType, out.body = typeSSE, func() ([]byte, error) { return eventStream(h), nil }
		out.bytes = answerBytes(h.Messages, h.State)
		return out, nil
	}
	a := historyAnswer{
		ThreadID: h.run.ThreadID, RunID: h.run.RunID, Status: h.run.Status,
		Basis: graph.Basis(h.run.RunID), badges: h.badges, State: h.State, Forks: forks,
		Error: failureOf(h.run.LastEnd()), Interrupts: h.run.Interrupts, Total: len(h.Messages),
		Through:   lastEvent(&h.run.Run),
		IndexedTo: v.indexedTo,
	}
	a.From, a.Messages = page.of(h.Messages)
	out.body = document(a)
	out.bytes = answerBytes(a.Messages, a.State)
	return out, nil
}

// messagePage selects part of a history: the last limit messages before an index.
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

// entityTag identifies a sealed history. The tag is weak: the same conversation may have other bytes (indexedTo,
// compression). A sealed record changes with a late error and, as the records that it is based on, if the thread is folded again,
// which rewrites every record that is based on a changed one. Forks do change, as later runs may branch from the chain.
func (c *call) entityTag(h restored, events bool, forks []client.Fork) (string, error) {
	form := "events"
	if !events {
		text, err := json.Marshal(forks)
		if err != nil {
			return "", fmt.Errorf("naming a history: %w", err)
		}
		form = "json-" + record.SHA256(text)[:16]
	}
	return fmt.Sprintf(`W/"%d-%d-%s-%s-%s"`, h.run.Raw.Partition, h.run.Version, form, c.Query.Get("limit"), c.Query.Get("before")), nil
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

// eventStream returns the AG-UI events that rebuild the history in a stock client. For an open run it stops after the
// snapshots, as no terminal event would be true. The id of the last event lets a reader continue after it.
func eventStream(h restored) []byte {
	var out sse
	events := h.events(false)
	last := len(events) - 1
	for _, ev := range events[:last] {
		out.event(ev, nil)
	}
	out.event(events[last], &cursor{at: lastEvent(&h.run.Run), seq: -1})
	return out.b.Bytes()
}

// lastEvent returns the position of the last event in a run's record.
func lastEvent(r *record.Run) record.Position {
	if r.LateError != nil {
		return record.Position{Partition: r.Raw.Partition, Offset: r.LateError.Offset}
	}
	return record.Position{Partition: r.Raw.Partition, Offset: r.Raw.Next - 1}
}

// events returns the AG-UI events of the history. A run that failed after its RUN_FINISHED ends with its RUN_ERROR alone, so that no
// client shows it as finished. If replace is true, the snapshots remove what a client had before.
func (h restored) events(replace bool) []json.RawMessage {
	terminal := h.run.LastEnd()
	if h.run.Status == record.StatusRunning {
		terminal = nil
	}
	return wholeRun(h.run.ThreadID, cmp.Or(h.run.ClientRunID, h.run.RunID), h.run.Started, h.Messages, h.State, terminal, replace)
}

// wholeRun returns the events that give a client a run: start, snapshots and, if there is one, the terminal event. The
// argument run is its client run id. If replace is true, the snapshots remove what the client had before.
func wholeRun(thread, run string, started json.RawMessage, messages []agui.Message, state, terminal json.RawMessage,
	replace bool) []json.RawMessage {
	if started == nil {
		started = agui.AppendString([]byte(`{"type":"RUN_STARTED","threadId":`), thread)
		started = agui.AppendString(append(started, `,"runId":`...), run)
		started = append(started, `,"protocolVersion":"`+agui.ProtocolVersion+`"}`...)
	}
	events := append([]json.RawMessage{identified(started, thread, run)}, compact.Snapshots(messages, state, replace)...)
	if terminal != nil {
		events = append(events, identified(terminal, thread, run))
	}
	return events
}

// identified returns a RUN_STARTED or RUN_FINISHED with the ids of its run, as agents send them with others, too. It
// returns other events unchanged.
func identified(event json.RawMessage, thread, run string) json.RawMessage {
	text := func(name string) string {
		if v := agui.Lookup(event, name); agui.IsString(v) {
			return agui.TextOf(v).String()
		}
		return ""
	}
	if t := agui.Type(text("type")); t != agui.RunStarted && t != agui.RunFinished {
		return event
	}
	for _, id := range [][2]string{{"runId", run}, {"threadId", thread}} {
		if text(id[0]) != id[1] {
			event = agui.WithFirst(agui.Without(event, id[0]), id[0], agui.AppendString(nil, id[1]))
		}
	}
	return event
}

// oneLine returns JSON without line breaks, because a line break ends an SSE field. JSON has raw line breaks only
// between tokens.
func oneLine(b json.RawMessage) []byte {
	return bytes.ReplaceAll(bytes.ReplaceAll(b, []byte{'\n'}, []byte{' '}), []byte{'\r'}, []byte{' '})
}

// maxAlternatives is how many runs a fork lists: those closest to the run of this history in the order of start.
const maxAlternatives = 100

// forksOf returns the forks of a run's chain, from the root on. own maps each run id to the run's own messages.
func forksOf(graph *lineage.Graph, rows []store.Run, run string, messages []agui.Message, own map[string][]agui.Message) []client.Fork {
	byID := byID(rows)
	forks := []client.Fork{}
	var tips map[string]string
	for _, id := range graph.Chain(run) {
		siblings := graph.Siblings(id)
		if len(siblings) == 0 {
			continue
		}
		if tips == nil { // computed once for all forks, of which there may be as many as runs
			tips = graph.Latest()
		}
		all := append(siblings, id)
		slices.SortFunc(all, func(a, b string) int { return compareRows(byID[a], byID[b]) })
		f := client.Fork{
			RunID: id, ParentRunID: graph.Parent(id), Index: slices.Index(all, id), Total: len(all), Message: firstOf(own[id], messages),
		}
		f.From = max(0, min(f.Index-maxAlternatives/2, f.Total-maxAlternatives))
		for _, other := range all[f.From:min(f.From+maxAlternatives, f.Total)] {
			row := byID[other]
			f.Alternatives = append(f.Alternatives,
				client.Alternative{RunID: other, TipRunID: tips[other], Status: row.Status, StartedAt: row.StartedAt})
		}
		forks = append(forks, f)
	}
	return forks
}

// firstOf returns the index of the first message in a history that is among own; nil if there is none.
func firstOf(own, messages []agui.Message) *int {
	ids := make(map[string]bool, len(own))
	for _, m := range own {
		ids[m.ID] = true
	}
	for i, m := range messages {
		if ids[m.ID] {
			return &i
		}
	}
	return nil
}
