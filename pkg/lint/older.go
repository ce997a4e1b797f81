package lint

import (
	"encoding/json"

	"github.com/skeinhq/skein/pkg/agui"
)

// older is an older form that the client converts to 1.0 until 2027-09-17.
type older struct {
	rule string
	// what is the older form, and instead is the form of 1.0, in the client's words.
	what, instead string
}

const absent = "an absent field"

// thinking maps the types that AG-UI 1.0 removed to those to which the client converts them.
var thinking = map[agui.Type]agui.Type{
	agui.ThinkingStart: agui.ReasoningStart, agui.ThinkingEnd: agui.ReasoningEnd,
	agui.ThinkingTextMessageStart: agui.ReasoningMessageStart, agui.ThinkingTextMessageContent: agui.ReasoningMessageContent,
	agui.ThinkingTextMessageEnd: agui.ReasoningMessageEnd,
}

// upgrade converts an event as the client does. It returns the type and the event of 1.0, and the older forms that the event
// contained. Ids that the client would make are empty.
func upgrade(t agui.Type, v json.RawMessage) (agui.Type, json.RawMessage, []older) {
	var found []older
	dropNull := func(v json.RawMessage, name, what string) json.RawMessage {
		if string(agui.Lookup(v, name)) != "null" {
			return v
		}
		found = append(found, older{RuleOlderNull, what + "." + name + ": null", absent})
		return agui.Without(v, name)
	}
	v = dropNull(v, "rawEvent", string(t))
	switch t {
	case agui.RunFinished:
		v = dropNull(v, "result", string(t))
		v = dropNull(v, "outcome", string(t))
	case agui.SubagentFinished:
		v = dropNull(v, "result", string(t))
	case agui.ToolCallStart, agui.ToolCallChunk:
		v = dropNull(v, "parentMessageId", string(t))
	case agui.MessagesSnapshot:
		v = mapMember(v, "messages", func(m json.RawMessage) json.RawMessage { return upgradeMessage(m, &found) })
	case agui.RunStarted:
		in := agui.Lookup(v, "input")
		if !agui.IsObject(in) {
			break
		}
		up := dropNull(in, "forwardedProps", "RunAgentInput")
		up = mapMember(up, "tools", func(e json.RawMessage) json.RawMessage { return dropNull(e, "parameters", "Tool") })
		up = mapMember(up, "resume", func(e json.RawMessage) json.RawMessage { return dropNull(e, "payload", "ResumeEntry") })
		up = mapMember(up, "messages", func(m json.RawMessage) json.RawMessage { return upgradeMessage(m, &found) })
		if !same(up, in) {
			v = with(v, "input", up)
		}
	}
	as, ok := thinking[t]
	if !ok {
		return t, v, found
	}
	found = append(found, older{RuleOlderThinking, string(t), string(as)})
	v = with(with(v, "type", agui.AppendString(nil, string(as))), "messageId", json.RawMessage(`""`))
	if t == agui.ThinkingTextMessageStart {
		v = with(v, "role", json.RawMessage(`"reasoning"`))
	}
	return as, v, found
}

// upgradeMessage upgrades the content parts of a message of a snapshot or an input.
func upgradeMessage(m json.RawMessage, found *[]older) json.RawMessage {
	binary := false
	for part := range agui.Elements(agui.Lookup(m, "content")) {
		kind := ""
		if t := agui.Lookup(part, "type"); agui.IsString(t) {
			kind = agui.TextOf(t).String()
		}
		switch kind {
		case "binary":
			binary = true
		case "image", "audio", "video", "document":
			if string(agui.Lookup(part, "metadata")) == "null" {
				*found = append(*found, older{RuleOlderNull, kind + " input content.metadata: null", absent})
			}
		}
	}
	if binary {
		*found = append(*found, older{RuleOlderBinary, "binary input content", "the modern media content parts"})
	}
	up, _ := agui.UpgradeMessage(m)
	return up
}

// mapMember applies change to the elements of a list in an object.
func mapMember(v json.RawMessage, name string, change func(json.RawMessage) json.RawMessage) json.RawMessage {
	up, changed := agui.MapElements(agui.Lookup(v, name), func(e json.RawMessage) (json.RawMessage, bool) {
		up := change(e)
		return up, !same(up, e)
	})
	if !changed {
		return v
	}
	return with(v, name, up)
}

// with returns the object with one member set to value and moved to the front.
func with(v json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	return agui.WithFirst(agui.Without(v, name), name, value)
}
