package query

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// interruptsAnswer is a page of the runs that wait for an answer, the longest waiting first.
type interruptsAnswer struct {
	Runs []waitingRun `json:"runs"`
	// Next is the next page's "after"; empty at the end.
	Next      string            `json:"next,omitempty"`
	IndexedTo []record.Position `json:"indexedTo"`
}

// waitingRun is a run that ended with interrupts and has no continuation.
type waitingRun struct {
	ThreadID string            `json:"threadId"`
	RunID    string            `json:"runId"`
	Agent    string            `json:"agent,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	EndedAt  time.Time         `json:"endedAt"`
	// AgeSeconds is how long the run has waited.
	AgeSeconds int64              `json:"ageSeconds"`
	Interrupts []waitingInterrupt `json:"interrupts"`
	Answer     interruptAnswer    `json:"answer"`
}

// waitingInterrupt is an open interrupt.
type waitingInterrupt struct {
	// Interrupt is the unchanged AG-UI object.
	Interrupt json.RawMessage `json:"interrupt"`
	// Expired: the time in its expiresAt has passed.
	Expired bool `json:"expired,omitempty"`
}

// interruptAnswer describes how to answer a run: get the input at Checkout, replace its resume by Resume, and send it
// to the agent.
type interruptAnswer struct {
	Checkout string        `json:"checkout"`
	Resume   []resumeEntry `json:"resume"`
}

// resumeEntry is an entry of RunAgentInput.resume. The caller adds a payload, or sets the status to cancelled.
type resumeEntry struct {
	InterruptID agui.String `json:"interruptId"`
	Status      string      `json:"status"`
}

// interrupts answers with the tenant's runs that wait for an answer.
func (c *call) interrupts() (*answer, error) {
	q := store.InterruptQuery{Agent: c.Query.Get("agent")}
	var err error
	if q.Limit, err = c.limit(); err != nil {
		return nil, err
	}
	if text := c.Query.Get("after"); text != "" {
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || json.Unmarshal(raw, &q.After) != nil {
			return nil, c.badParam("after", "next of the page before")
		}
	}
	to, err := c.store.IndexedTo(c.R.Context(), c.Tenant)
	if err != nil {
		return nil, err
	}
	runs, next, err := c.store.Interrupted(c.R.Context(), c.Tenant, q)
	if err != nil {
		return nil, err
	}
	a := interruptsAnswer{Runs: make([]waitingRun, len(runs)), IndexedTo: positions(to)}
	now := time.Now()
	for i, r := range runs {
		a.Runs[i] = newWaitingRun(r, now)
	}
	if next != nil {
		raw, err := json.Marshal(next)
		if err != nil {
			return nil, err
		}
		a.Next = base64.RawURLEncoding.EncodeToString(raw)
	}
	return &answer{body: document(a)}, nil
}

func newWaitingRun(r store.Run, now time.Time) waitingRun {
	ended := r.StartedAt
	if r.EndedAt != nil {
		ended = *r.EndedAt
	}
	w := waitingRun{
		ThreadID: r.ThreadID, RunID: r.RunID, Agent: r.Agent, Labels: r.Labels,
		EndedAt: ended, AgeSeconds: max(0, int64(now.Sub(ended)/time.Second)), Interrupts: []waitingInterrupt{},
		Answer: interruptAnswer{
			Checkout: "/v1/threads/" + url.PathEscape(r.ThreadID) + "/runs/" + url.PathEscape(r.RunID) + "/checkout",
			Resume:   []resumeEntry{},
		},
	}
	for _, raw := range r.Interrupts {
		var entry struct {
			ID        agui.String
			ExpiresAt string
		}
		// The interrupt is as the agent sent it. If it has another form, it has no expiry.
		_ = json.Unmarshal(raw, &entry)
		until, err := time.Parse(time.RFC3339, entry.ExpiresAt)
		w.Interrupts = append(w.Interrupts, waitingInterrupt{raw, err == nil && until.Before(now)})
		w.Answer.Resume = append(w.Answer.Resume, resumeEntry{entry.ID, "resolved"})
	}
	return w
}
