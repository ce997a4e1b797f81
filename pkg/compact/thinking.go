package compact

import (
	"strconv"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
)

// thinkingAs is the last row of the upgrade table: the THINKING_* events that left the protocol
// with 1.0, and what they are now. They carry no ids. The official client makes random ones; the
// fold must give the same result each time, so it counts them within the run. Of other types it is "".
func thinkingAs(t agui.Type) agui.Type {
	switch t {
	case agui.ThinkingStart:
		return agui.ReasoningStart
	case agui.ThinkingEnd:
		return agui.ReasoningEnd
	case agui.ThinkingTextMessageStart:
		return agui.ReasoningMessageStart
	case agui.ThinkingTextMessageContent:
		return agui.ReasoningMessageContent
	case agui.ThinkingTextMessageEnd:
		return agui.ReasoningMessageEnd
	}
	return ""
}

// thinking is where the translation stands. It is part of the checkpoint.
type thinking struct {
	Made    int         `json:"made,omitempty"` // ids made so far
	Span    agui.String `json:"span,omitempty"`
	Message agui.String `json:"message,omitempty"`
}

// madeByThinking begins the ids of messages that come from THINKING_* events.
const madeByThinking = "thinking-"

// MadeByThinking reports whether a message has an id that a fold has made up, as its events brought none. A client that
// took in the same events has the message under another one.
func MadeByThinking(m agui.Message) bool {
	return m.Role == agui.RoleReasoning && strings.HasPrefix(m.ID, madeByThinking)
}

// thinkingID returns an id that no message of the conversation has.
func (r *Run) thinkingID() string {
	for {
		r.p.Thinking.Made++
		id := madeByThinking + string(r.p.RunID) + "-" + strconv.Itoa(r.p.Thinking.Made)
		if r.conv.find(id) == nil {
			return id
		}
	}
}

// orNew returns the id of what is open; where nothing is, one that names nothing, as the client makes one up.
func (r *Run) orNew(id agui.String) string {
	if id == "" {
		return r.thinkingID()
	}
	return string(id)
}

func (r *Run) applyThinking(ev *agui.Event, as agui.Type, o owner) {
	r.closeLanes(as, o)
	metadata := ev.JSON(agui.FieldMetadata)
	at := &r.p.Thinking
	switch as {
	case agui.ReasoningStart:
		id := r.thinkingID()
		at.Span = agui.String(id)
		r.p.verify.open(kindSpan, id, o)
	case agui.ReasoningEnd:
		r.p.verify.close(kindSpan, r.orNew(at.Span), o)
		at.Span = ""
	case agui.ReasoningMessageStart:
		id := r.thinkingID()
		at.Message = agui.String(id)
		r.reasoningStart(id, o, metadata)
	case agui.ReasoningMessageContent:
		r.reasoningContent(r.orNew(at.Message), ev.Text(agui.FieldDelta), o, metadata)
	case agui.ReasoningMessageEnd:
		r.reasoningEnd(r.orNew(at.Message), o, metadata)
		at.Message = ""
	}
}
