package lint

import (
	"encoding/json"
	"math"
	"strconv"

	"github.com/skeinhq/skein/pkg/agui"
)

// shape is the client's schema of one value. Exactly one of is, object, list and options is set; the zero value allows any JSON.
type shape struct {
	// is checks a value as a whole. It returns a description of what the value must be, or "" if the value is valid.
	is func(v json.RawMessage) string
	// object has the members of an object. Other members are removed, unless the object is open, as RFC 6902 requires of operations.
	object []field
	open   bool
	// list is the shape of a list's elements; min is the minimum number of elements.
	list *shape
	min  int
	// orText allows a string in place of the list.
	orText bool
	// options has shapes of objects. The value of an object's member whose name is by selects the shape.
	by      string
	options map[string]*shape
}

// field is one member of an object's schema.
type field struct {
	name     string
	of       *shape
	required bool
}

func must(name string, of *shape) field { return field{name, of, true} }
func may(name string, of *shape) field  { return field{name, of, false} }

func object(fields ...field) *shape { return &shape{object: fields} }
func listOf(of *shape) *shape       { return &shape{list: of} }

// operation returns the shape of an operation of RFC 6902, which may have other members.
func operation(fields ...field) *shape {
	return &shape{object: append(fields, must("op", text)), open: true}
}

func union(by string, options map[string]*shape) *shape { return &shape{by: by, options: options} }

// wants returns the shape of values for which ok returns true.
func wants(what string, ok func(v json.RawMessage) bool) *shape {
	return &shape{is: func(v json.RawMessage) string {
		if ok(v) {
			return ""
		}
		return what
	}}
}

// oneOf returns the shape of these strings.
func oneOf(values ...string) *shape {
	what := ""
	for i, v := range values {
		if i > 0 {
			what += " or "
		}
		what += strconv.Quote(v)
	}
	return wants(what, func(v json.RawMessage) bool {
		for _, ok := range values {
			if agui.IsString(v) && agui.TextOf(v).String() == ok {
				return true
			}
		}
		return false
	})
}

var (
	anything = &shape{}
	notNull  = wants("anything but null", func(v json.RawMessage) bool { return string(v) != "null" })
	text     = wants("a string", agui.IsString)
	boolean  = wants("true or false", func(v json.RawMessage) bool { return string(v) == "true" || string(v) == "false" })
	anObject = wants("an object", agui.IsObject)
	integer  = wants("an integer within 2^53-1", func(v json.RawMessage) bool {
		n, ok := number(v)
		return ok && n == math.Trunc(n) && math.Abs(n) <= maxSafe
	})
	counter = wants("an integer from 0 to 2^53-1", func(v json.RawMessage) bool {
		n, ok := number(v)
		return ok && n == math.Trunc(n) && n >= 0 && n <= maxSafe
	})
	pointer = wants("a JSON Pointer, such as /a/0", func(v json.RawMessage) bool {
		return agui.IsString(v) && agui.IsPointer(agui.TextOf(v).String())
	})
)

// maxSafe is JavaScript's MAX_SAFE_INTEGER.
const maxSafe = 1<<53 - 1

// number returns the double that JavaScript reads from a JSON number, and whether v is one.
func number(v json.RawMessage) (float64, bool) {
	if len(v) == 0 || v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		return 0, false
	}
	n, _ := strconv.ParseFloat(string(v), 64) // out of range gives infinity, as in JavaScript
	return n, true
}

// The schemas of @ag-ui/core 1.0.0, and encryptedValueType of AG-UI 1.1.
var (
	encrypted, encryptedType = may("encryptedValue", text), may("encryptedValueType", text)

	source = union("type", map[string]*shape{
		"data": object(must("type", text), must("value", text), must("mimeType", text)),
		"url":  object(must("type", text), must("value", text), may("mimeType", text)),
		"file": object(must("type", text), must("value", text), may("provider", text), may("mimeType", text)),
	})
	media = object(must("type", text), may("id", text), must("source", source), may("metadata", notNull))
	parts = &shape{orText: true, list: union("type", map[string]*shape{
		"text":  object(must("type", text), may("id", text), must("text", text), may("metadata", notNull)),
		"image": media, "audio": media, "video": media, "document": media,
	})}
	patch = listOf(union("op", map[string]*shape{
		"add":     operation(must("path", pointer), must("value", anything)),
		"replace": operation(must("path", pointer), must("value", anything)),
		"test":    operation(must("path", pointer), must("value", anything)),
		"remove":  operation(must("path", pointer)),
		"move":    operation(must("from", pointer), must("path", pointer)),
		"copy":    operation(must("from", pointer), must("path", pointer)),
	}))
	toolCall = object(must("id", text), must("type", oneOf("function")),
		must("function", object(must("name", text), must("arguments", text))),
		encrypted, encryptedType, may("metadata", anObject))
	messages = listOf(union("role", map[string]*shape{
		"developer": message(may("name", text), encrypted, encryptedType, must("content", text)),
		"system":    message(may("name", text), encrypted, encryptedType, must("content", text)),
		"assistant": message(may("name", text), encrypted, encryptedType, may("content", text), may("toolCalls", listOf(toolCall))),
		"user":      message(may("name", text), encrypted, encryptedType, must("content", parts)),
		"tool":      message(must("toolCallId", text), may("error", text), encrypted, encryptedType, must("content", parts)),
		"activity":  message(must("activityType", text), must("content", anObject)),
		"reasoning": message(encrypted, encryptedType, must("content", text)),
	}))
	tool   = object(must("name", text), must("description", text), may("parameters", notNull), may("metadata", anObject))
	answer = object(must("interruptId", text), must("status", oneOf("resolved", "cancelled")),
		may("payload", notNull), may("metadata", anObject))
	input = object(must("threadId", text), must("runId", text), may("protocolVersion", text),
		may("parentRunId", text), may("state", anything),
		must("messages", messages), may("tools", listOf(tool)), may("context", listOf(object(must("description", text), must("value", text)))),
		may("forwardedProps", notNull), may("resume", listOf(answer)))
	interrupt = object(may("subagentRunId", text), must("id", text), must("reason", text), may("message", text), may("toolCallId", text),
		may("responseSchema", anObject), may("expiresAt", text), may("metadata", anObject))
	outcome = union("type", map[string]*shape{
		"success":   object(must("type", text), may("pendingToolCallIds", listOf(text))),
		"interrupt": object(must("type", text), must("interrupts", &shape{list: interrupt, min: 1})),
		"cancelled": object(must("type", text)),
	})
	subagentOutcome = union("type", map[string]*shape{
		"success":   object(must("type", text)),
		"suspended": object(must("type", text), may("interruptIds", listOf(text))),
	})
	usage = listOf(object(may("provider", text), may("model", text), may("inputTokens", counter),
		may("outputTokens", counter), may("totalTokens", counter),
		may("reasoningTokens", counter), may("cachedInputTokens", counter), may("cacheWriteInputTokens", counter)))
	textRole = oneOf("developer", "system", "assistant", "user")
)

func message(fields ...field) *shape {
	return object(append(fields, may("subagentRunId", text), must("id", text), must("role", text), may("metadata", anObject))...)
}

func event(fields ...field) *shape {
	return object(append(fields, must("type", text), may("timestamp", integer), may("rawEvent", notNull), may("metadata", anObject))...)
}

// by returns the shape of an event that a subagent may send.
func by(fields ...field) *shape { return event(append(fields, may("subagentRunId", text))...) }

var events = map[agui.Type]*shape{
	agui.RunStarted: event(must("threadId", text), must("runId", text), may("protocolVersion", text),
		may("parentRunId", text), may("input", input)),
	agui.RunFinished: event(must("threadId", text), must("runId", text), may("result", notNull),
		may("outcome", outcome), may("usage", usage)),
	agui.RunError:                event(must("message", text), may("code", text), may("usage", usage)),
	agui.StepStarted:             by(must("stepName", text)),
	agui.StepFinished:            by(must("stepName", text)),
	agui.TextMessageStart:        by(must("messageId", text), may("role", textRole), may("name", text)),
	agui.TextMessageContent:      by(must("messageId", text), must("delta", text)),
	agui.TextMessageEnd:          by(must("messageId", text)),
	agui.TextMessageChunk:        by(may("messageId", text), may("role", textRole), may("delta", text), may("name", text)),
	agui.ToolCallStart:           by(must("toolCallId", text), must("toolCallName", text), may("parentMessageId", text)),
	agui.ToolCallArgs:            by(must("toolCallId", text), must("delta", text)),
	agui.ToolCallEnd:             by(must("toolCallId", text)),
	agui.ToolCallChunk:           by(may("toolCallId", text), may("toolCallName", text), may("parentMessageId", text), may("delta", text)),
	agui.ToolCallResult:          by(must("messageId", text), must("toolCallId", text), must("content", parts), may("role", oneOf("tool"))),
	agui.StateSnapshot:           by(must("snapshot", anything)),
	agui.StateDelta:              by(must("delta", patch)),
	agui.MessagesSnapshot:        event(must("messages", messages)),
	agui.ActivitySnapshot:        by(must("messageId", text), must("activityType", text), must("content", anObject), may("replace", boolean)),
	agui.ActivityDelta:           by(must("messageId", text), must("activityType", text), must("patch", patch)),
	agui.ReasoningStart:          by(must("messageId", text)),
	agui.ReasoningEnd:            by(must("messageId", text)),
	agui.ReasoningMessageStart:   by(must("messageId", text), must("role", oneOf("reasoning"))),
	agui.ReasoningMessageContent: by(must("messageId", text), must("delta", text)),
	agui.ReasoningMessageEnd:     by(must("messageId", text)),
	agui.ReasoningMessageChunk:   by(may("messageId", text), may("delta", text)),
	agui.ReasoningEncryptedValue: by(must("subtype", oneOf("tool-call", "message")), must("entityId", text), must("encryptedValue", text),
		encryptedType),
	agui.SubagentStarted: event(must("subagentRunId", text), must("name", text), may("description", text), may("parentSubagentRunId", text),
		may("parentToolCallId", text), may("parentMessageId", text)),
	agui.SubagentFinished: event(must("subagentRunId", text), may("result", notNull), may("outcome", subagentOutcome)),
	agui.SubagentError:    event(must("subagentRunId", text), must("message", text), may("code", text)),
	agui.Raw:              by(must("event", anything), may("source", text)),
	agui.Custom:           by(must("name", text), must("value", anything)),
}
