package compact

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/skeinhq/skein/pkg/agui"
)

// The values of Summary.Status.
const (
	StatusRunning     = "running"
	StatusFinished    = "finished"
	StatusError       = "error"
	StatusInterrupted = "interrupted"
	StatusCancelled   = "cancelled"
)

// Summary is what a fold counted and kept.
type Summary struct {
	Status     string                `json:"status"`
	Events     agui.StringMap[int64] `json:"events"`     // folded, by the type as received
	EventBytes agui.StringMap[int64] `json:"eventBytes"` // of these events
	ToolCalls  agui.StringMap[int64] `json:"toolCalls"`  // started, by name
	Anomalies  map[string]int64      `json:"anomalies"`  // by rule

	Started  json.RawMessage   `json:"started,omitempty"` // RUN_STARTED without its input
	Kept     []json.RawMessage `json:"kept,omitempty"`    // events of the families set by Keep
	Terminal json.RawMessage   `json:"terminal,omitempty"`

	Interrupts       []json.RawMessage `json:"interrupts,omitempty"`
	PendingToolCalls agui.Strings      `json:"pendingToolCalls,omitempty"`
}

// Summary returns what the fold has counted so far. Maps and slices belong to the fold: read them before the next Apply
// and do not change them.
func (r *Run) Summary() Summary {
	r.p.addBurst()
	return r.p.Summary
}

// progress is everything that a fold holds besides messages and state; its JSON is the checkpoint.
type progress struct {
	Summary
	RunID       agui.String  `json:"runId,omitempty"`
	ToolCallIDs agui.Strings `json:"toolCallIds,omitempty"` // started in this run, in order
	Answered    set          `json:"answered,omitempty"`
	Thinking    thinking     `json:"thinking"`
	// Renamed reports whether the conversation has messages of the input under other ids: see Run.Rename.
	Renamed bool `json:"renamed,omitempty"`
	// Same lists the positions that share a message: see conversation.same.
	Same [][3]int `json:"same,omitempty"`
	// Cut reports whether the fold ignores contents: see Run.Cut.
	Cut bool `json:"cut,omitempty"`

	called set // ToolCallIDs as a set
	burst  burst
	lanes  lanes
	verify *verifier
}

func newProgress() progress {
	p := progress{
		Summary: Summary{
			Status: StatusRunning, Events: agui.StringMap[int64]{}, EventBytes: agui.StringMap[int64]{}, ToolCalls: agui.StringMap[int64]{},
			Anomalies: map[string]int64{},
		},
		verify: &verifier{},
	}
	anomalies := p.Anomalies
	p.verify.note = func(rule string) { anomalies[rule]++ }
	return p
}

// progressJSON is the checkpoint on the wire.
type progressJSON struct {
	*plainProgress
	Lanes  []*lane   `json:"lanes,omitempty"`
	Verify *verifier `json:"verify"`
}

type plainProgress progress

// MarshalJSON implements json.Marshaler.
func (p *progress) MarshalJSON() ([]byte, error) {
	p.addBurst()
	return json.Marshal(progressJSON{(*plainProgress)(p), p.lanes.all(), p.verify})
}

// UnmarshalJSON implements json.Unmarshaler; p comes from newProgress.
func (p *progress) UnmarshalJSON(b []byte) error {
	w := progressJSON{plainProgress: (*plainProgress)(p), Verify: p.verify}
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	if w.Verify == nil || p.Events == nil || p.EventBytes == nil || p.ToolCalls == nil || p.Anomalies == nil {
		return errors.New("a part of it is null")
	}
	for _, id := range p.ToolCallIDs {
		p.called = p.called.with(id)
	}
	for _, l := range w.Lanes {
		if l == nil || p.lanes.byOwner[l.owner()] != nil || p.lanes.byID[l.entity()] != nil {
			return errors.New("two streams are open in one lane, or one in two")
		}
		p.lanes.open(l)
	}
	p.verify = w.Verify
	anomalies := p.Anomalies
	p.verify.note = func(rule string) { anomalies[rule]++ }
	return nil
}

// count counts an event that was folded.
func (r *Run) count(ev *agui.Event) {
	if !r.counts(ev.Type) {
		return
	}
	if ev.Type != r.p.burst.of {
		r.p.addBurst()
		r.p.burst.of, r.p.burst.keep = ev.Type, !r.p.Cut && r.keep.Keep(ev.Type)
	}
	r.p.burst.events++
	r.p.burst.bytes += int64(len(ev.Raw))
	if r.p.burst.keep {
		r.p.Kept = append(r.p.Kept, bytes.Clone(ev.Body))
	}
}

// burst counts consecutive events of one type, such as deltas, until addBurst adds them to the summary's maps.
type burst struct {
	of            agui.Type
	keep          bool // Keep applies to the type
	events, bytes int64
}

func (p *progress) addBurst() {
	if p.burst.events > 0 {
		p.Events[string(p.burst.of)] += p.burst.events
		p.EventBytes[string(p.burst.of)] += p.burst.bytes
	}
	p.burst = burst{}
}
