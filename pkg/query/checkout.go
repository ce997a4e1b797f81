package query

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// headerRemarks says what of a checked out input or an export is not plain truth, in the words of
// remarks: neither has room for it.
const headerRemarks = "Skein-Remarks"

// The points of a run that can be checked out.
const (
	// atEnd: go on from the run. The new run is its child.
	atEnd = "end"
	// atStart: do the run over. The new run is its sibling.
	atStart = "start"
)

// checkout answers with a RunAgentInput that any agent can be called with to go on from the run in
// the path (the thread's tip, where it names none) or, with ?at=start, to do that run over. It names
// its parent, so that nothing has to be inferred when it comes back.
func (c *call) checkout() (*answer, error) {
	at, err := oneOf(c, "at", atEnd, atStart)
	if err != nil {
		return nil, err
	}
	newID, err := c.runParam("runId")
	if err != nil {
		return nil, err
	}
	v, graph, h, err := c.restoreOrTip()
	if err != nil {
		return nil, err
	}
	if newID == "" {
		newID = rand.Text()
	} else if used(v.runs, newID) {
		return nil, &front.Problem{Status: http.StatusConflict, Detail: fmt.Sprintf("the thread has a run %q already; name another with runId, or none", newID)}
	}
	in := newInput{threadID: c.threadID, runID: newID}
	if at == atStart {
		err = c.startOver(&in, v.runs, h)
	} else {
		err = in.goOn(graph, v.runs, h)
	}
	if err != nil {
		return nil, err
	}
	if err := c.weigh(in.messages, in.state, in.from); err != nil {
		return nil, err
	}
	body, err := in.encode()
	if err != nil {
		return nil, err
	}
	return &answer{status: v.status, indexedTo: &v.indexedTo, remarks: remarks(graph, h), body: body}, nil
}

// used reports whether a run of the thread has the id, or its agent gave it that.
func used(runs []store.Run, id string) bool {
	return slices.ContainsFunc(runs, func(r store.Run) bool { return r.RunID == id || r.ClientRunID == id })
}

// remarks are the badges of honesty of a history, as words of a header.
func remarks(graph *lineage.Graph, h restored) []string {
	var out []string
	for _, r := range []struct {
		is   bool
		word string
	}{
		{h.run.Status == record.StatusRunning, "running"},
		{graph.Basis(h.run.RunID) == lineage.BasisInferred, "inferred"},
		{h.badges.Synthetic, "synthetic-end"},
		{h.badges.Truncated, "truncated"},
		{h.badges.RawLost, "raw-lost"},
	} {
		if r.is {
			out = append(out, r.word)
		}
	}
	return out
}

// newInput is a RunAgentInput in the making.
type newInput struct {
	threadID, runID, parent string
	messages                []agui.Message
	state                   json.RawMessage
	resume                  []json.RawMessage
	// from is a stored input, for tools, context, forwardedProps and whatever else there is;
	// nil where none was ever given.
	from json.RawMessage
}

// goOn fills the input of a run that continues h. What clients do not send, activity messages, is
// left out. Of the tools and the like, those of the nearest run of the chain are taken that had an
// input.
func (in *newInput) goOn(graph *lineage.Graph, runs []store.Run, h restored) error {
	in.parent, in.messages, in.state = h.run.RunID, lineage.InputMessages(h.Messages), h.State
	rows := make(map[string]store.Run, len(runs))
	for _, r := range runs {
		rows[r.RunID] = r
	}
	in.from = h.run.Input
	for _, id := range graph.Ancestors(h.run.RunID) {
		if in.from != nil {
			break
		}
		in.from = rows[id].Input
	}
	for _, interrupt := range h.run.Interrupts {
		r, err := resumeOf(interrupt)
		if err != nil {
			return err
		}
		in.resume = append(in.resume, r)
	}
	return nil
}

// resumeOf is the entry of resume for an open interrupt. It cancels the interrupt: an input that is sent
// unchanged must not approve anything. The entry's metadata has the interrupt, so that a person who answers
// sees the question.
func resumeOf(interrupt json.RawMessage) (json.RawMessage, error) {
	type metadata struct {
		Interrupt json.RawMessage `json:"interrupt"`
	}
	return marshal(struct {
		InterruptID json.RawMessage `json:"interruptId"`
		Status      string          `json:"status"`
		Metadata    metadata        `json:"metadata"`
	}{agui.Lookup(interrupt, "id"), "cancelled", metadata{interrupt}})
}

// startOver fills the input that the run of h was itself started with: its own, whole, or where it
// had none what its parent held.
func (c *call) startOver(in *newInput, runs []store.Run, h restored) error {
	if in.parent = h.run.ParentRunID; in.parent == "" {
		in.parent = string(h.run.SpawnedBy)
	}
	var base lineage.History
	if h.run.Base != "" {
		b, err := c.restore(runs, h.run.Base)
		if err != nil {
			return err
		}
		base = b.History
	}
	if h.run.Input == nil {
		if h.run.Base != h.run.ParentRunID {
			return &front.Problem{Status: http.StatusConflict, Detail: fmt.Sprintf(
				"run %q had no input and started from run %q while that was open: what it started from was not kept", h.run.RunID, h.run.ParentRunID)}
		}
		start := lineage.StartHistory(lineage.ParentBy(h.run.ParentBy), base, nil)
		in.messages, in.state = lineage.InputMessages(start.Messages), start.State
		return nil
	}
	var err error
	if in.messages, err = lineage.FullInput(base.Messages, h.inputMessages, h.run.InputLayout); err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	in.from, in.state, in.resume = h.run.Input, agui.Lookup(h.run.Input, "state"), h.run.Resumes
	return nil
}

// encode writes the input. Messages, state and what the stored input has are written as they came.
func (in *newInput) encode() (json.RawMessage, error) {
	own, err := marshal(struct {
		ThreadID string            `json:"threadId"`
		RunID    string            `json:"runId"`
		Parent   agui.String       `json:"parentRunId,omitempty"`
		State    json.RawMessage   `json:"state,omitempty"`
		Messages []agui.Message    `json:"messages"`
		Resume   []json.RawMessage `json:"resume,omitempty"`
	}{in.threadID, in.runID, agui.String(in.parent), in.state, list(in.messages), in.resume})
	if err != nil {
		return nil, err
	}
	members := []byte(own)[:len(own)-1]
	put := func(name string, v json.RawMessage) {
		members = append(append(agui.AppendString(append(members, ','), name), ':'), v...)
	}
	missing := []string{"tools", "context", "forwardedProps"}
	for name, v := range agui.Members(in.from) {
		switch name {
		case "threadId", "runId", "parentRunId", "state", "messages", "resume":
			continue
		}
		put(name, v)
		missing = slices.DeleteFunc(missing, func(m string) bool { return m == name })
	}
	for _, name := range missing {
		empty := json.RawMessage(`[]`)
		if name == "forwardedProps" {
			empty = json.RawMessage(`{}`)
		}
		put(name, empty)
	}
	return append(members, '}'), nil
}
