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

// headerRemarks is the header that lists the badges of a checked out input or an export, in the words of remarks.
// Neither body has a field for them.
const headerRemarks = "Skein-Remarks"

// checkout answers with a RunAgentInput for any agent. It continues from the run in the path (by default the thread's
// tip), at its end or at the step that ?at names. At step 0, it repeats that run. The input names its parent, so that
// Skein need not infer the parent later.
func (c *call) checkout() (*answer, error) {
	ref, err := c.stepRef("at", "end")
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
	} else if err := record.ValidateNewID(newID); err != nil {
		return nil, badRequest("runId: %v", err)
	} else if used(v.runs, newID) {
		return nil, &front.Problem{Status: http.StatusConflict, Detail: fmt.Sprintf("the thread has a run %q already; name another with runId, or none", newID)}
	}
	in := newInput{threadID: c.threadID, runID: newID}
	again := ref.n == 0
	if !again && !ref.End {
		if again, err = c.rewind(v, ref, &h); err != nil {
			return nil, err
		}
	}
	if again {
		err = c.startOver(&in, v.runs, h)
	} else {
		err = in.goOn(graph, v.runs, h)
	}
	if err != nil {
		return nil, err
	}
	return &answer{status: v.status, indexedTo: &v.indexedTo, remarks: remarks(graph, h), body: in.encode,
		bytes: answerBytes(in.messages, in.state, in.from)}, nil
}

// rewind replaces messages and state of h by those after a step of its run. An interrupt opens with the last event, so that none is
// open before. start reports whether it is step 0.
func (c *call) rewind(v view, ref stepRef, h *restored) (start bool, err error) {
	err = c.stepThrough(v, h.run.RunID, ref.within, func(s stepping) error {
		n, err := ref.find(s)
		if start = n == 0; err != nil || start || n == s.Len() && s.Done() {
			return err
		}
		at, err := s.at(n, n)
		if err != nil {
			return err
		}
		h.History, h.run.Interrupts = at.History(), nil
		s.keep(at)
		return nil
	})
	return start, err
}

// used reports whether a run of the thread has the id, as its own or from its agent.
func used(runs []store.Run, id string) bool {
	return slices.ContainsFunc(runs, func(r store.Run) bool { return r.RunID == id || r.ClientRunID == id })
}

// remarks returns the badges of a history as words for a header.
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

// newInput is a RunAgentInput under construction.
type newInput struct {
	threadID, runID, parent string
	messages                []agui.Message
	state                   json.RawMessage
	resume                  []json.RawMessage
	// from is a stored input, the source of tools, context, forwardedProps and all other fields; nil if there is none.
	from json.RawMessage
}

// goOn fills in the input of a run that continues h. It leaves out activity messages, as clients do not send them.
// Tools and other fields come from the nearest run of the chain that had an input.
func (in *newInput) goOn(graph *lineage.Graph, runs []store.Run, h restored) error {
	in.parent, in.messages, in.state = h.run.RunID, lineage.InputMessages(h.Messages), h.State
	rows := byID(runs)
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

// resumeOf returns the resume entry for an open interrupt. The entry cancels the interrupt, because an input that is
// sent unchanged must not approve anything. Its metadata has the interrupt, so that the person who answers sees the
// question.
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

// startOver fills in the input that started the run of h: the run's own input, whole, or if the run had none, the
// history of its parent.
func (c *call) startOver(in *newInput, runs []store.Run, h restored) error {
	if in.parent = h.run.ParentRunID; in.parent == "" {
		in.parent = string(h.run.SpawnedBy)
	}
	var base lineage.History
	if h.run.Base != "" {
		b, err := c.restore(c.R.Context(), runs, h.run.Base)
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

// encode returns the input as a line of JSON. Messages, state and fields of the stored input keep their bytes, without
// white space between tokens.
func (in *newInput) encode() ([]byte, error) {
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
		members = append(append(agui.AppendString(append(members, ','), name), ':'), record.Compacted(v)...)
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
	return append(members, "}\n"...), nil
}
