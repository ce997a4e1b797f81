package compact

import (
	"encoding/json"
	"maps"

	"github.com/skeinhq/skein/pkg/agui"
)

// Cut returns the fold of the run without what does not fit: it has these messages, state and kept events, in which references stand for
// what was cut, and folds contents no more. From here on an event is counted by its type, the terminal one ends the run, and neither
// breaks a rule; streams and tool calls that are open are forgotten. Types that are counted are those of the protocol and those that
// came before: what producers make up would fill the memory that a cut is to free. WithCounts leaves even those out that came.
func (r *Run) Cut(messages []agui.Message, state, started json.RawMessage, kept []json.RawMessage, withCounts bool) *Run {
	was := r.Summary()
	c := New(messages, state)
	c.keep, c.p.RunID, c.p.Cut = r.keep, r.p.RunID, true
	c.p.Started, c.p.Kept = started, kept
	maps.Copy(c.p.Anomalies, was.Anomalies)
	if withCounts {
		maps.Copy(c.p.Events, was.Events)
		maps.Copy(c.p.EventBytes, was.EventBytes)
		maps.Copy(c.p.ToolCalls, was.ToolCalls)
		maps.Copy(c.p.Usage, was.Usage)
	}
	return c
}

// applyCut folds an event of a run that was cut.
func (r *Run) applyCut(ev *agui.Event) {
	v := r.p.verify
	note := v.note
	v.note = func(string) {}
	defer func() { v.note = note }()
	switch ev.Type {
	case agui.RunFinished:
		r.runFinished(ev)
	case agui.RunError:
		r.end(ev, StatusError)
	default:
	}
}

// counts reports whether events of a type are counted by it.
func (r *Run) counts(t agui.Type) bool {
	if !r.p.Cut || t.Known() {
		return true
	}
	_, came := r.p.Events[string(t)]
	return came
}

const (
	placeOverhead = 512 // of a message in the list: its place, its indexes and, once it was changed, its members
	nodeOverhead  = 100 // of a node of a document that patches led through
	few           = 64  // of each count for nothing: a fold that has begun takes as much
)

// Overhead is about how many bytes the fold takes beside those that it was given: much, where messages are short or patches lead through
// large documents. It costs nothing to ask.
func (r *Run) Overhead() int {
	return placeOverhead*max(0, r.conv.count+len(r.p.ToolCallIDs)+len(r.p.Events)-few) + nodeOverhead*max(0, r.reading.nodes-few)
}
