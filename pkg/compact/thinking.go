package compact

import (
	"strconv"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
)

// thinkingAs returns the type that replaced a THINKING_* event in AG-UI 1.0, or "" for other types. THINKING_* events carry no
// ids. The official client makes random ones; the fold numbers them within the run, so that its result is deterministic.
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

// thinking is the state of translating THINKING_* events. It is part of the checkpoint.
type thinking struct {
	Made    int         `json:"made,omitempty"` // ids made so far
	Span    agui.String `json:"span,omitempty"`
	Message agui.String `json:"message,omitempty"`
}

// madeByThinking is the prefix of the ids of messages from THINKING_* events.
const madeByThinking = "thinking-"

// MadeByThinking reports whether a fold made the message's id because its events had none. A client that has played the
// same events has the message under another id.
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

// orNew returns the id, or a new one that no message has if the id is empty, as the client does.
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
		r.messageStart(kindReasoning, id, agui.RoleReasoning, nil, o, metadata)
	case agui.ReasoningMessageContent:
		r.messageContent(kindReasoning, r.orNew(at.Message), ev.Text(agui.FieldDelta), o, metadata)
	case agui.ReasoningMessageEnd:
		r.messageEnd(kindReasoning, r.orNew(at.Message), o, metadata)
		at.Message = ""
	}
}
