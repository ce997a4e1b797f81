package agui

import (
	"encoding/json"
	"strconv"
)

// The upgrade table: older wire forms that agents in the field still send, and what AG-UI 1.0
// calls them. It works on the decoded members; the event's bytes stay as they came. Each row is
// tested as a pair of an older and a 1.0 event in upgrade_test.go, and as a pair of runs in
// test/conformance.
//
//	member or form                                    becomes
//	rawEvent, result, outcome, parentMessageId: null  absent
//	STATE_DELTA patch                                 delta
//	STATE_DELTA delta as a single operation           a list of one
//	STATE_SNAPSHOT state                              snapshot
//	RUN_FINISHED outcome "interrupt" + interrupt      {type: "interrupt", interrupts: […]}
//	REASONING_MESSAGE_START role "assistant"          role "reasoning"
//	REASONING_ENCRYPTED_VALUE encryptedContent        encryptedValue
//	binary content parts                              image, audio, video, document
//	content parts: null metadata                      absent
//	input: messages as strings, without id or role    user messages with an id by their place
//	input: resume as an object                        a list of one
//	input: null forwardedProps, parameters, payload   absent
//	THINKING_*                                        REASONING_* (the fold gives the ids)
//	RUN_STARTED without threadId                      accepted
func (e *Event) upgrade() {
	e.dropNull(FieldRawEvent)
	switch e.Type {
	case RunFinished:
		e.dropNull(FieldResult)
		e.dropNull(FieldOutcome)
		if v := e.JSON(FieldOutcome); kindOf(v) == kindString && unquote(v) == "interrupt" {
			if i := e.JSON(fieldInterrupt); kindOf(i) == kindObject {
				e.set(FieldOutcome, concat(`{"type":"interrupt","interrupts":[`, i, `]}`))
			}
		}
	case SubagentFinished:
		e.dropNull(FieldResult)
	case ToolCallStart, ToolCallChunk:
		e.dropNull(FieldParentMessageID)
	case StateDelta:
		e.rename(FieldPatch, FieldDelta)
		if v := e.JSON(FieldDelta); kindOf(v) == kindObject {
			e.set(FieldDelta, concat(`[`, v, `]`))
		}
	case StateSnapshot:
		e.rename(fieldState, FieldSnapshot)
	case ReasoningMessageStart:
		if v := e.JSON(FieldRole); kindOf(v) == kindString && unquote(v) == RoleAssistant {
			e.set(FieldRole, json.RawMessage(`"reasoning"`))
		}
	case ReasoningEncryptedValue:
		e.rename(fieldEncryptedContent, FieldEncryptedValue)
	case MessagesSnapshot:
		if v := e.JSON(FieldMessages); kindOf(v) == kindArray {
			if up, changed := mapElements(v, upgradeMessage); changed {
				e.set(FieldMessages, up)
			}
		}
	case RunStarted:
		if v := e.JSON(FieldInput); kindOf(v) == kindObject {
			if up, changed := upgradeInput(v); changed {
				e.set(FieldInput, up)
			}
		}
	}
}

func (e *Event) dropNull(f Field) {
	if kindOf(e.JSON(f)) == kindNull {
		e.drop(f)
	}
}

// upgradeInput brings a RunAgentInput to its 1.0 form.
func upgradeInput(in json.RawMessage) (json.RawMessage, bool) {
	return mapMembers(in, func(name string, v json.RawMessage) (json.RawMessage, bool) {
		switch name {
		case "forwardedProps":
			if kindOf(v) == kindNull {
				return nil, true
			}
		case "resume":
			if kindOf(v) == kindObject {
				v = concat(`[`, v, `]`)
				up, _ := mapElements(v, dropsNull("payload"))
				return up, true
			}
			return mapElements(v, dropsNull("payload"))
		case "tools":
			return mapElements(v, dropsNull("parameters"))
		case "messages":
			place := 0
			return mapElements(v, func(m json.RawMessage) (json.RawMessage, bool) {
				place++
				named, changed := nameMessage(m, place)
				up, changedToo := upgradeMessage(named)
				return up, changed || changedToo
			})
		}
		return v, false
	})
}

// nameMessage makes a user message of a bare string and gives id and role to a message that has
// none. The id is the message's place, counted from 1: the same conversation sent again with more at
// its end gets the same ids.
func nameMessage(m json.RawMessage, place int) (json.RawMessage, bool) {
	id := AppendString(nil, "message-"+strconv.Itoa(place))
	switch kindOf(m) {
	case kindString:
		return concat(`{"id":`, id, `,"role":"user","content":`, m, `}`), true
	case kindObject:
		changed := false
		if Lookup(m, "role") == nil {
			m, changed = withFirst(m, "role", json.RawMessage(`"user"`)), true
		}
		if Lookup(m, "id") == nil {
			m, changed = withFirst(m, "id", id), true
		}
		return m, changed
	}
	return m, false
}

// upgradeMessage turns binary content parts into media parts and drops their null metadata.
func upgradeMessage(m json.RawMessage) (json.RawMessage, bool) {
	return mapMembers(m, func(name string, v json.RawMessage) (json.RawMessage, bool) {
		if name != "content" || kindOf(v) != kindArray {
			return v, false
		}
		return mapElements(v, upgradePart)
	})
}

func upgradePart(part json.RawMessage) (json.RawMessage, bool) {
	typ := Lookup(part, "type")
	if kindOf(typ) != kindString {
		return part, false
	}
	switch unquote(typ) {
	case "image", "audio", "video", "document":
		return dropsNull("metadata")(part)
	case "binary":
	default:
		return part, false
	}
	mime := Lookup(part, "mimeType")
	if kindOf(mime) != kindString {
		return part, false
	}
	source, value := "data", Lookup(part, "data")
	if kindOf(value) != kindString || len(value) == 2 {
		source, value = "url", Lookup(part, "url")
	}
	if kindOf(value) != kindString || len(value) == 2 {
		return part, false // only an id: there is nothing to convert
	}
	out := concat(`{"type":"`, []byte(mediaType(unquote(mime))), `","source":{"type":"`, []byte(source),
		`","value":`, value, `,"mimeType":`, mime, `}`)
	if name := Lookup(part, "filename"); kindOf(name) == kindString && len(name) > 2 {
		out = append(out, concat(`,"metadata":{"filename":`, name, `}`)...)
	}
	return append(out, '}'), true
}

func mediaType(mime string) string {
	for _, family := range []string{"image", "audio", "video"} {
		if len(mime) > len(family) && mime[:len(family)+1] == family+"/" {
			return family
		}
	}
	return "document"
}

func dropsNull(member string) func(json.RawMessage) (json.RawMessage, bool) {
	return func(v json.RawMessage) (json.RawMessage, bool) {
		return mapMembers(v, func(name string, m json.RawMessage) (json.RawMessage, bool) {
			if name == member && kindOf(m) == kindNull {
				return nil, true
			}
			return m, false
		})
	}
}

// mapMembers replaces member values; nil drops the member. Where nothing changes v itself is returned.
func mapMembers(v json.RawMessage, change func(string, json.RawMessage) (json.RawMessage, bool)) (json.RawMessage, bool) {
	if kindOf(v) != kindObject {
		return v, false
	}
	out, changed := []byte{'{'}, false
	for name, m := range Members(v) {
		up, ch := change(name, m)
		changed = changed || ch
		if up == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(AppendString(out, name), ':'), up...)
	}
	if !changed {
		return v, false
	}
	return append(out, '}'), true
}

// mapElements replaces the elements of an array. Where nothing changes v itself is returned.
func mapElements(v json.RawMessage, change func(json.RawMessage) (json.RawMessage, bool)) (json.RawMessage, bool) {
	if kindOf(v) != kindArray {
		return v, false
	}
	out, changed := []byte{'['}, false
	for m := range Elements(v) {
		up, ch := change(m)
		changed = changed || ch
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, up...)
	}
	if !changed {
		return v, false
	}
	return append(out, ']'), true
}

// withFirst puts a member in front of an object's others.
func withFirst(obj json.RawMessage, name string, v json.RawMessage) json.RawMessage {
	out := append(append(AppendString([]byte{'{'}, name), ':'), v...)
	for n, m := range Members(obj) {
		out = append(append(AppendString(append(out, ','), n), ':'), m...)
	}
	return append(out, '}')
}

// concat joins strings and bytes.
func concat(parts ...any) json.RawMessage {
	var out []byte
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			out = append(out, p...)
		case []byte:
			out = append(out, p...)
		case json.RawMessage:
			out = append(out, p...)
		}
	}
	return out
}
