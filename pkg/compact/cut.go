package compact

import (
	"encoding/json"

	"github.com/skeinhq/skein/pkg/agui"
)

// Cut returns a fold that continues the run with less content (docs/adr/014). It starts from these messages, state and kept events,
// in which references replace what was cut. It folds no more contents, counts no anomalies, and forgets what is open. It still
// counts events by type, but only types of the protocol and, if withCounts is set, those that the run had before: more made-up types
// would fill the memory that a cut frees. The terminal event ends it. Without withCounts its counts start from zero.
func (r *Run) Cut(messages []agui.Message, state, started json.RawMessage, kept []json.RawMessage, withCounts bool) *Run {
	was := r.Summary()
	c := New(messages, state)
	c.keep, c.p.RunID, c.p.Cut = r.keep, r.p.RunID, true
	c.p.Started, c.p.Kept = started, kept
	if !withCounts {
		was.Events, was.EventBytes, was.ToolCalls = nil, nil, nil
	}
	c.p.setCounts(&was)
	return c
}

// applyCut folds an event of a run that was cut.
func (r *Run) applyCut(ev *agui.Event) {
	defer r.p.verify.silence()()
	switch ev.Type {
	case agui.RunFinished:
		r.runFinished(ev)
	case agui.RunError:
		r.end(ev, StatusError)
	default:
	}
}

// counts reports whether events of a type are counted.
func (r *Run) counts(t agui.Type) bool {
	if !r.p.Cut || t.Known() {
		return true
	}
	_, came := r.p.events.Get(t)
	return came
}

const (
	messageCost  = 512 // bytes of a message of the list: its index entries and, after a change, its members
	nodeCost     = 100 // bytes of a node of a document that patches have parsed
	freeElements = 64  // number of each that is not counted, since an empty fold takes about as much
)

// Overhead returns about how many bytes of memory the fold takes besides the JSON that it was given. It is large if messages
// are short or patches have parsed large documents. The call is cheap.
func (r *Run) Overhead() int {
	elements := len(r.conv.list) + len(r.p.ToolCallIDs) + r.p.events.Len()
	return messageCost*max(0, elements-freeElements) + nodeCost*max(0, r.reading.nodes-freeElements)
}
