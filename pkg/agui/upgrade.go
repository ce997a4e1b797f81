package agui

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// upgrade converts older wire forms that agents still send to their form in AG-UI 1.0, by the table below. It changes the decoded
// members, not the event's bytes. upgrade_test.go tests each row as a pair of an older and a 1.0 event, and test/conformance as a
// pair of runs.
//
//	member or form                                    becomes
//	rawEvent, result, outcome, parentMessageId: null  absent
//	STATE_DELTA patch                                 delta
//	STATE_DELTA delta as a single operation           a list of one
//	STATE_SNAPSHOT state                              snapshot
//	RUN_FINISHED outcome "interrupt" + interrupt      {type: "interrupt", interrupts: […]}
//	REASONING_MESSAGE_START role "assistant"          role "reasoning"
//	REASONING_ENCRYPTED_VALUE encryptedContent        encryptedValue
//	binary content parts                              image, audio, video, document; none if one mirrors it
//	content parts: null metadata                      absent
//	TOOL_CALL_RESULT content: both of these           as in the message that it becomes
//	messages of unknown roles: null subagentRunId     absent
//	input: messages as strings, without id or role    user messages with an id of the run's id and their position
//	input: resume as an object                        a list of one
//	input: null forwardedProps, parameters, payload   absent
//	THINKING_*                                        REASONING_* (the fold makes the ids)
//	RUN_STARTED without threadId                      accepted
func (e *Event) upgrade() {
	e.dropNull(FieldRawEvent)
	switch e.Type {
	case RunFinished:
		e.dropNull(FieldResult)
		e.dropNull(FieldOutcome)
		if v := e.JSON(FieldOutcome); kindOf(v) == kindString && unquote(v) == "interrupt" {
			if i := e.JSON(fieldInterrupt); kindOf(i) == kindObject {
				e.set(FieldOutcome, fmt.Appendf(nil, `{"type":"interrupt","interrupts":[%s]}`, i))
			}
		}
	case SubagentFinished:
		e.dropNull(FieldResult)
	case ToolCallStart, ToolCallChunk:
		e.dropNull(FieldParentMessageID)
	case ToolCallResult:
		if up, changed := upgradeParts(e.JSON(FieldContent)); changed {
			e.set(FieldContent, up)
		}
	case StateDelta:
		e.rename(FieldPatch, FieldDelta)
		if v := e.JSON(FieldDelta); kindOf(v) == kindObject {
			e.set(FieldDelta, fmt.Appendf(nil, `[%s]`, v))
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
			if up, changed := MapElements(v, UpgradeMessage); changed {
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

// upgradeInput converts a RunAgentInput to its 1.0 form.
func upgradeInput(in json.RawMessage) (json.RawMessage, bool) {
	return mapMembers(in, func(name string, v json.RawMessage) (json.RawMessage, bool) {
		switch name {
		case "forwardedProps":
			if kindOf(v) == kindNull {
				return nil, true
			}
		case "resume":
			if kindOf(v) == kindObject {
				v = fmt.Appendf(nil, `[%s]`, v)
				up, _ := MapElements(v, dropsNull("payload"))
				return up, true
			}
			return MapElements(v, dropsNull("payload"))
		case "tools":
			return MapElements(v, dropsNull("parameters"))
		case "messages":
			return MapElements(v, UpgradeMessage)
		}
		return v, false
	})
}

// nameMessages turns bare strings into user messages. It adds a missing id, and a missing role if the content is that of a user
// message. An id contains the run's id and the message's position from 1, so that messages of different runs never share one.
func nameMessages(list json.RawMessage, run string) (json.RawMessage, bool) {
	place := 0
	return MapElements(list, func(m json.RawMessage) (json.RawMessage, bool) {
		place++
		switch kindOf(m) {
		case kindString:
			return fmt.Appendf(nil, `{"id":%s,"role":"user","content":%s}`, madeID(run, place), m), true
		case kindObject:
			changed := false
			content := kindOf(Lookup(m, "content"))
			if Lookup(m, "role") == nil && (content == kindString || content == kindArray) {
				m, changed = WithFirst(m, "role", json.RawMessage(`"user"`)), true
			}
			if Lookup(m, "id") == nil {
				m, changed = WithFirst(m, "id", madeID(run, place)), true
			}
			return m, changed
		}
		return m, false
	})
}

func madeID(run string, place int) json.RawMessage {
	return AppendString(nil, madePrefix+run+"~"+strconv.Itoa(place))
}

const madePrefix = "message-"

// Unnamed reports whether a client gave a message no id: it is empty, or one that DecodeInput made. A client may have received the latter
// from Skein since.
func Unnamed(id string) bool {
	cut := strings.LastIndexByte(id, '~')
	return id == "" || cut >= 0 && strings.HasPrefix(id, madePrefix) && UnnamedIn(id[len(madePrefix):cut], id)
}

// UnnamedIn is Unnamed for a message of this run's input.
func UnnamedIn(run, id string) bool {
	place, made := strings.CutPrefix(id, madePrefix+run+"~")
	return id == "" || made && place != "" && strings.Trim(place, "0123456789") == ""
}

// UpgradeMessage converts a message's binary content parts to media parts, and drops null metadata of parts. If the role is
// unknown, it drops a null subagentRunId, which the schemas of known roles reject.
func UpgradeMessage(m json.RawMessage) (up json.RawMessage, changed bool) {
	if up = m; kindOf(Lookup(m, "subagentRunId")) == kindNull && !knownRole(stringOrNone(Lookup(m, "role"))) {
		up, changed = Without(up, "subagentRunId"), true
	}
	if parts, ok := upgradeParts(Lookup(m, "content")); ok {
		up, changed = with(up, "content", parts), true
	}
	return up, changed
}

// upgradeParts drops a binary part that mirrors a media part, since agents send an attachment in both forms for the
// sake of older clients. It keeps equal media parts, and binary parts that mirror none.
func upgradeParts(parts json.RawMessage) (json.RawMessage, bool) {
	var media map[attachment]bool // of the media parts; made for the first binary part
	return MapElements(parts, func(part json.RawMessage) (json.RawMessage, bool) {
		switch stringOrNone(Lookup(part, "type")) {
		case "image", "audio", "video", "document":
			return dropsNull("metadata")(part)
		case "binary":
		default:
			return part, false
		}
		up, ok := upgradeBinary(part)
		if !ok {
			return part, false
		}
		if media == nil {
			media = attachments(parts)
		}
		a, name := attachmentOf(up), Lookup(part, "filename")
		if truthy(name) {
			a.filename = scalar(name)
		}
		if a.value != "" && (a.filename != "" || !truthy(name)) && media[a] {
			return nil, true
		}
		return up, true
	})
}

// upgradeBinary converts a binary part. Like the client, it tests data, url and filename for JavaScript truthiness. It copies values
// that are not strings, which the schema then rejects.
func upgradeBinary(part json.RawMessage) (json.RawMessage, bool) {
	mime := Lookup(part, "mimeType")
	if kindOf(mime) != kindString {
		return nil, false
	}
	source, value := "data", Lookup(part, "data")
	if !truthy(value) {
		source, value = "url", Lookup(part, "url")
	}
	if !truthy(value) {
		return nil, false // the part has only an id
	}
	out := fmt.Appendf(nil, `{"type":"%s","source":{"type":"%s","value":%s,"mimeType":%s}`, mediaType(unquote(mime)), source, value, mime)
	if name := Lookup(part, "filename"); truthy(name) {
		out = fmt.Appendf(out, `,"metadata":{"filename":%s}`, name)
	}
	return append(out, '}'), true
}

// attachment identifies a media part. Each member is what scalar returns; a filename of "" is ignored.
type attachment struct{ kind, source, value, mimeType, filename string }

// attachments returns each media part with and without its filename, since a binary part without a filename mirrors both.
func attachments(parts json.RawMessage) map[attachment]bool {
	all := map[attachment]bool{}
	for part := range Elements(parts) {
		a := attachmentOf(part)
		all[a] = true
		a.filename = scalar(Lookup(Lookup(part, "metadata"), "filename"))
		all[a] = true
	}
	return all
}

func attachmentOf(part json.RawMessage) attachment {
	source := Lookup(part, "source")
	return attachment{
		kind: scalar(Lookup(part, "type")), source: scalar(Lookup(source, "type")), value: scalar(Lookup(source, "value")),
		mimeType: scalar(Lookup(source, "mimeType")),
	}
}

// scalar returns equal texts for values that are equal by JavaScript's ===. It returns "" for a list or an object.
func scalar(v json.RawMessage) string {
	switch kindOf(v) {
	case kindString:
		return `"` + unquote(v)
	case kindNumber:
		return strconv.FormatFloat(float(v)+0, 'g', -1, 64) // -0 is 0
	case kindBool, kindNull:
		return string(v)
	}
	return ""
}

// truthy reports whether JavaScript's if treats the value as true.
func truthy(v json.RawMessage) bool {
	switch kindOf(v) {
	case kindNone, kindNull:
		return false
	case kindString:
		return len(v) > len(`""`)
	case kindNumber:
		return float(v) != 0
	case kindBool:
		return v[0] == 't'
	}
	return true
}

// float returns the nearest 64-bit float of a checked number, as JavaScript reads it.
func float(v json.RawMessage) float64 {
	f, _ := strconv.ParseFloat(string(v), 64) // out of range gives infinity
	return f
}

func mediaType(mime string) string {
	switch family, _, ok := strings.Cut(mime, "/"); family {
	case "image", "audio", "video":
		if ok {
			return family
		}
	}
	return "document"
}

func dropsNull(member string) func(json.RawMessage) (json.RawMessage, bool) {
	return func(v json.RawMessage) (json.RawMessage, bool) {
		if kindOf(Lookup(v, member)) != kindNull {
			return v, false
		}
		return Without(v, member), true
	}
}

// mapMembers replaces the values of an object's members; a nil value drops the member. It returns v itself if nothing changes.
func mapMembers(v json.RawMessage, change func(string, json.RawMessage) (json.RawMessage, bool)) (json.RawMessage, bool) {
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

// MapElements replaces the elements of an array; a nil value drops the element. It returns v itself if nothing changes.
func MapElements(v json.RawMessage, change func(json.RawMessage) (json.RawMessage, bool)) (json.RawMessage, bool) {
	var out []byte // nil until an element changes: an unchanged list may have MiB
	add := func(m json.RawMessage) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, m...)
	}
	n := 0
	for m := range Elements(v) {
		up, changed := change(m)
		if changed && out == nil {
			out = append(make([]byte, 0, len(v)), '[')
			before := 0
			for m := range Elements(v) {
				if before == n {
					break
				}
				add(m)
				before++
			}
		}
		if out != nil && up != nil {
			add(up)
		}
		n++
	}
	if out == nil {
		return v, false
	}
	return append(out, ']'), true
}

// WithFirst returns the object with one more member at the front.
func WithFirst(obj json.RawMessage, name string, v json.RawMessage) json.RawMessage {
	out := append(append(AppendString([]byte{'{'}, name), ':'), v...)
	for n, m := range Members(obj) {
		out = append(append(AppendString(append(out, ','), n), ':'), m...)
	}
	return append(out, '}')
}
