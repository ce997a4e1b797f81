package compact

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/skeinhq/skein/internal/few"
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

// Summary returns what the fold has counted so far. Slices belong to the fold: read them before the next Apply and do not
// change them.
func (r *Run) Summary() Summary { return r.p.summary() }

// progress is everything that a fold holds besides messages and state; its JSON is the checkpoint.
type progress struct {
	Summary                  // without its maps: see summary
	RunID       agui.String  `json:"runId,omitempty"`
	ToolCallIDs agui.Strings `json:"toolCallIds,omitempty"` // started in this run, in order
	Answered    set          `json:"answered,omitzero"`
	Thinking    thinking     `json:"thinking"`
	// Renamed reports whether the conversation has messages of the input under other ids: see Run.Rename.
	Renamed bool `json:"renamed,omitempty"`
	// Same lists the positions that share a message: see conversation.same.
	Same [][3]int `json:"same,omitempty"`
	// Cut reports whether the fold ignores contents: see Run.Cut.
	Cut bool `json:"cut,omitempty"`

	events    few.Map[agui.Type, count]
	toolCalls few.Map[string, int64]
	called    set // ToolCallIDs as a set
	burst     burst
	lanes     lanes
	verify    *verifier
}

// count counts the events of a type.
type count struct{ events, bytes int64 }

func newProgress() progress {
	return progress{Summary: Summary{Status: StatusRunning}, verify: &verifier{}}
}

func (p *progress) summary() Summary {
	p.addBurst()
	s := p.Summary
	s.Events, s.EventBytes = agui.StringMap[int64]{}, agui.StringMap[int64]{}
	for t, n := range p.events.Copy() {
		s.Events[string(t)], s.EventBytes[string(t)] = n.events, n.bytes
	}
	s.ToolCalls, s.Anomalies = p.toolCalls.Copy(), p.verify.noted.Copy()
	return s
}

// setCounts sets what is counted to the maps of a summary.
func (p *progress) setCounts(s *Summary) {
	for t, n := range s.Events {
		p.events.Set(agui.Type(t), count{n, s.EventBytes[t]})
	}
	for name, n := range s.ToolCalls {
		p.toolCalls.Set(name, n)
	}
	for rule, n := range s.Anomalies {
		p.verify.noted.Set(rule, n)
	}
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
	plain := plainProgress(*p)
	plain.Summary = p.summary()
	return json.Marshal(progressJSON{&plain, p.lanes.all(), p.verify})
}

// UnmarshalJSON implements json.Unmarshaler; p comes from newProgress.
func (p *progress) UnmarshalJSON(b []byte) error {
	w := progressJSON{plainProgress: (*plainProgress)(p), Verify: p.verify}
	p.Summary = p.summary() // what is not in b is empty, and null is an error
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	if w.Verify == nil || p.Events == nil || p.EventBytes == nil || p.ToolCalls == nil || p.Anomalies == nil {
		return errors.New("a part of it is null")
	}
	for _, id := range p.ToolCallIDs {
		p.called.Set(id, true)
	}
	for _, l := range w.Lanes {
		if l == nil || p.lanes.byOwner.At(l.owner()) != nil || p.lanes.byID.At(l.entity()) != nil {
			return errors.New("two streams are open in one lane, or one in two")
		}
		p.lanes.open(l)
	}
	p.setCounts(&p.Summary)
	p.Events, p.EventBytes, p.ToolCalls, p.Anomalies = nil, nil, nil, nil
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

// burst counts consecutive events of one type, such as deltas, until addBurst adds them to progress.events.
type burst struct {
	of            agui.Type
	keep          bool // Keep applies to the type
	events, bytes int64
}

func (p *progress) addBurst() {
	if p.burst.events > 0 {
		n := p.events.At(p.burst.of)
		p.events.Set(p.burst.of, count{n.events + p.burst.events, n.bytes + p.burst.bytes})
	}
	p.burst = burst{}
}
