package agui

// Field is a member of an event that the protocol describes.
type Field uint8

// The members of all event types. What a member must be depends on the event type: see specs.
const (
	FieldType Field = iota
	FieldTimestamp
	FieldRawEvent
	FieldMetadata
	FieldSubagentRunID
	FieldThreadID
	FieldRunID
	FieldProtocolVersion
	FieldParentRunID
	FieldInput
	FieldResult
	FieldOutcome
	FieldUsage
	FieldMessage
	FieldCode
	FieldStepName
	FieldMessageID
	FieldRole
	FieldName
	FieldDelta
	FieldToolCallID
	FieldToolCallName
	FieldParentMessageID
	FieldContent
	FieldSnapshot
	FieldPatch
	FieldMessages
	FieldActivityType
	FieldReplace
	FieldSubtype
	FieldEntityID
	FieldEncryptedValue
	FieldEncryptedValueType
	FieldDescription
	FieldParentSubagentRunID
	FieldParentToolCallID
	FieldEvent
	FieldSource
	FieldValue
	// Members of older wire forms, see upgrade.go.
	fieldState
	fieldInterrupt
	fieldEncryptedContent
	numFields
)

// fieldNames is indexed by Field.
var fieldNames = [numFields]string{
	"type", "timestamp", "rawEvent", "metadata", "subagentRunId", "threadId", "runId", "protocolVersion",
	"parentRunId", "input", "result", "outcome", "usage", "message", "code", "stepName", "messageId", "role",
	"name", "delta", "toolCallId", "toolCallName", "parentMessageId", "content", "snapshot", "patch",
	"messages", "activityType", "replace", "subtype", "entityId", "encryptedValue",
	"encryptedValueType", "description", "parentSubagentRunId", "parentToolCallId",
	"event", "source", "value", "state", "interrupt", "encryptedContent",
}

// String returns the member's name on the wire.
func (f Field) String() string { return fieldNames[f] }

// fieldSlots is a hash table of the fields by name, with open addressing, since every member of every event is looked up. A slot
// holds the field plus 1, or 0 if it is empty.
var fieldSlots = func() (slots [256]Field) {
	for f, name := range fieldNames {
		i := fieldHash(name)
		for slots[i] != 0 {
			i++
		}
		slots[i] = Field(f) + 1
	}
	return slots
}()

// fieldHash hashes a non-empty name by its length and three of its letters.
func fieldHash[S string | []byte](name S) uint8 {
	return uint8(len(name))*31 + name[0]*7 + name[len(name)-1]*5 + name[len(name)/2]
}

func fieldNamed(name []byte) (Field, bool) {
	if len(name) == 0 {
		return 0, false
	}
	for i := fieldHash(name); fieldSlots[i] != 0; i++ {
		if f := fieldSlots[i] - 1; fieldNames[f] == string(name) {
			return f, true
		}
	}
	return 0, false
}

// The event types of AG-UI 1.0.
const (
	RunStarted              Type = "RUN_STARTED"
	RunFinished             Type = "RUN_FINISHED"
	RunError                Type = "RUN_ERROR"
	StepStarted             Type = "STEP_STARTED"
	StepFinished            Type = "STEP_FINISHED"
	TextMessageStart        Type = "TEXT_MESSAGE_START"
	TextMessageContent      Type = "TEXT_MESSAGE_CONTENT"
	TextMessageEnd          Type = "TEXT_MESSAGE_END"
	TextMessageChunk        Type = "TEXT_MESSAGE_CHUNK"
	ToolCallStart           Type = "TOOL_CALL_START"
	ToolCallArgs            Type = "TOOL_CALL_ARGS"
	ToolCallEnd             Type = "TOOL_CALL_END"
	ToolCallChunk           Type = "TOOL_CALL_CHUNK"
	ToolCallResult          Type = "TOOL_CALL_RESULT"
	StateSnapshot           Type = "STATE_SNAPSHOT"
	StateDelta              Type = "STATE_DELTA"
	MessagesSnapshot        Type = "MESSAGES_SNAPSHOT"
	ActivitySnapshot        Type = "ACTIVITY_SNAPSHOT"
	ActivityDelta           Type = "ACTIVITY_DELTA"
	ReasoningStart          Type = "REASONING_START"
	ReasoningMessageStart   Type = "REASONING_MESSAGE_START"
	ReasoningMessageContent Type = "REASONING_MESSAGE_CONTENT"
	ReasoningMessageEnd     Type = "REASONING_MESSAGE_END"
	ReasoningMessageChunk   Type = "REASONING_MESSAGE_CHUNK"
	ReasoningEnd            Type = "REASONING_END"
	ReasoningEncryptedValue Type = "REASONING_ENCRYPTED_VALUE"
	SubagentStarted         Type = "SUBAGENT_STARTED"
	SubagentFinished        Type = "SUBAGENT_FINISHED"
	SubagentError           Type = "SUBAGENT_ERROR"
	Raw                     Type = "RAW"
	Custom                  Type = "CUSTOM"
	// Meta is in a draft of the protocol; it is kept and folds to nothing.
	Meta Type = "META"
)

// The event types that AG-UI 1.0 removed; the fold reads them as REASONING_*.
const (
	ThinkingStart              Type = "THINKING_START"
	ThinkingEnd                Type = "THINKING_END"
	ThinkingTextMessageStart   Type = "THINKING_TEXT_MESSAGE_START"
	ThinkingTextMessageContent Type = "THINKING_TEXT_MESSAGE_CONTENT"
	ThinkingTextMessageEnd     Type = "THINKING_TEXT_MESSAGE_END"
)

// check returns an error if a member's value is not what the schema requires.
type check func(t Type, f Field, v []byte) error

// spec is the schema of an event type.
type spec struct {
	name      Type
	members   []member
	described uint64 // the members as a bit set
}

// unknownSpec is the spec of all unknown types.
var unknownSpec spec

type member struct {
	field    Field
	required bool
	check    check
}

func must(f Field, c check) member { return member{f, true, c} }
func may(f Field, c check) member  { return member{f, false, c} }

// event returns the given members and those that every event has; attributable adds subagentRunId, too.
func event(members ...member) []member {
	return append(members, may(FieldTimestamp, isTimestamp), may(FieldRawEvent, isNotNull), may(FieldMetadata, isObject))
}

func attributable(members ...member) []member {
	return event(append(members, may(FieldSubagentRunID, isString))...)
}

// specs has the spec of each known event type.
var specs = func() map[Type]*spec {
	m := make(map[Type]*spec, len(schemas))
	for t, members := range schemas {
		s := &spec{name: t, members: members, described: 1 << FieldType}
		for _, member := range members {
			s.described |= 1 << member.field
		}
		m[t] = s
	}
	return m
}()

// schemas has the members of each event type as the schemas of @ag-ui/core 1.0.0 describe them, and encryptedValueType of AG-UI 1.1.
var schemas = map[Type][]member{
	RunStarted: event(may(FieldThreadID, isString), must(FieldRunID, isString), may(FieldProtocolVersion, isString),
		may(FieldParentRunID, isString), may(FieldInput, isInput)),
	RunFinished: event(must(FieldThreadID, isString), must(FieldRunID, isString), may(FieldResult, isNotNull),
		may(FieldOutcome, isOutcome), may(FieldUsage, isUsage)),
	RunError:           event(must(FieldMessage, isString), may(FieldCode, isString), may(FieldUsage, isUsage)),
	StepStarted:        attributable(must(FieldStepName, isString)),
	StepFinished:       attributable(must(FieldStepName, isString)),
	TextMessageStart:   attributable(must(FieldMessageID, isString), may(FieldRole, isTextRole), may(FieldName, isString)),
	TextMessageContent: attributable(must(FieldMessageID, isString), must(FieldDelta, isString)),
	TextMessageEnd:     attributable(must(FieldMessageID, isString)),
	TextMessageChunk: attributable(may(FieldMessageID, isString), may(FieldRole, isTextRole), may(FieldDelta, isString),
		may(FieldName, isString)),
	ToolCallStart: attributable(must(FieldToolCallID, isString), must(FieldToolCallName, isString), may(FieldParentMessageID, isString)),
	ToolCallArgs:  attributable(must(FieldToolCallID, isString), must(FieldDelta, isString)),
	ToolCallEnd:   attributable(must(FieldToolCallID, isString)),
	ToolCallChunk: attributable(may(FieldToolCallID, isString), may(FieldToolCallName, isString),
		may(FieldParentMessageID, isString), may(FieldDelta, isString)),
	ToolCallResult: attributable(must(FieldMessageID, isString), must(FieldToolCallID, isString), must(FieldContent, isContent),
		may(FieldRole, isToolRole)),
	StateSnapshot:    attributable(must(FieldSnapshot, isAny)),
	StateDelta:       attributable(must(FieldDelta, isPatch)),
	MessagesSnapshot: event(must(FieldMessages, isMessages)),
	ActivitySnapshot: attributable(must(FieldMessageID, isString), must(FieldActivityType, isString), must(FieldContent, isObject),
		may(FieldReplace, isBool)),
	ActivityDelta:           attributable(must(FieldMessageID, isString), must(FieldActivityType, isString), must(FieldPatch, isPatch)),
	ReasoningStart:          attributable(must(FieldMessageID, isString)),
	ReasoningEnd:            attributable(must(FieldMessageID, isString)),
	ReasoningMessageStart:   attributable(must(FieldMessageID, isString), must(FieldRole, isReasoningRole)),
	ReasoningMessageContent: attributable(must(FieldMessageID, isString), must(FieldDelta, isString)),
	ReasoningMessageEnd:     attributable(must(FieldMessageID, isString)),
	ReasoningMessageChunk:   attributable(may(FieldMessageID, isString), may(FieldDelta, isString)),
	ReasoningEncryptedValue: attributable(must(FieldSubtype, isSubtype), must(FieldEntityID, isString), must(FieldEncryptedValue, isString),
		may(FieldEncryptedValueType, isString)),
	SubagentStarted: event(must(FieldSubagentRunID, isString), must(FieldName, isString), may(FieldDescription, isString),
		may(FieldParentSubagentRunID, isString), may(FieldParentToolCallID, isString), may(FieldParentMessageID, isString)),
	SubagentFinished: event(must(FieldSubagentRunID, isString), may(FieldResult, isNotNull), may(FieldOutcome, isSubagentOutcome)),
	SubagentError:    event(must(FieldSubagentRunID, isString), must(FieldMessage, isString), may(FieldCode, isString)),
	Raw:              attributable(must(FieldEvent, isAny), may(FieldSource, isString)),
	Custom:           attributable(must(FieldName, isString), must(FieldValue, isAny)),

	ThinkingStart:              attributable(),
	ThinkingEnd:                attributable(),
	ThinkingTextMessageStart:   attributable(),
	ThinkingTextMessageContent: attributable(must(FieldDelta, isString)),
	ThinkingTextMessageEnd:     attributable(),
}

// Terminal reports whether an event of the type ends a run.
func (t Type) Terminal() bool { return t == RunFinished || t == RunError }

// Known reports whether the type is in the vocabulary of AG-UI 1.0.
func (t Type) Known() bool {
	_, ok := specs[t]
	return ok && !t.thinking()
}

func (t Type) thinking() bool {
	switch t {
	case ThinkingStart, ThinkingEnd, ThinkingTextMessageStart, ThinkingTextMessageContent, ThinkingTextMessageEnd:
		return true
	}
	return false
}
