package agui

import (
	"bytes"
	"cmp"
	"encoding/json"
	"time"
	"unicode/utf8"
)

// Type is an event type, such as "TEXT_MESSAGE_START". Unknown types are kept as they are.
type Type string

// Event is one AG-UI event: its exact bytes, and the positions of its members in them. Members that the protocol does not
// describe for the event's type are only in Raw.
type Event struct {
	// Type is the event's type after the upgrade table; Raw keeps the form as received.
	Type Type
	// Raw is the event as received. It aliases the bytes given to Decode.
	Raw json.RawMessage
	// Body is what is folded and kept: Raw with null in place of numbers that no double can hold, such as 1e400. The client reads such a
	// number as infinity and encodes it as null; other readers refuse it.
	Body json.RawMessage

	// ThreadID, RunID and ParentRunID are those of RUN_STARTED and RUN_FINISHED; empty for other types.
	ThreadID, RunID, ParentRunID string
	// Timestamp is the agent's, in milliseconds since 1970. The protocol defines no unit: most agents send milliseconds, llama-index
	// sends seconds. A value is read as seconds if in milliseconds it would be before March 1973.
	Timestamp    int64
	HasTimestamp bool

	spec        *spec                // of Type; unknownSpec for an unknown one
	undescribed bool                 // whether it has a member that no event type has
	beyond      bool                 // whether it has a number that no double can hold
	has         uint64               // bit f is set if member f is present
	spans       [numFields][2]uint32 // start and end in Body, or {inExtras, index in extras}
	extras      []json.RawMessage    // values that the upgrade table made
}

const inExtras = ^uint32(0)

// Envelope checks that an event is one JSON object in UTF-8, has a type, and is nested no deeper than that type allows. It
// returns the type unchanged. IsMalformed is true for every error.
func Envelope(b []byte) (Type, error) {
	var e Event
	if err := e.scan(b); err != nil {
		return "", err
	}
	return e.Type, nil
}

// TypeOf returns the type that an event names; "" if it names none. It also reads a value that is no JSON, or only a part of one: of the
// types that its outermost objects name, the first that ends a run counts, else the first.
func TypeOf(b []byte) (t Type) {
	if t, err := Envelope(b); err == nil {
		return t
	}
	for i, depth := 0, 0; i < len(b); i++ {
		switch b[i] {
		case '{':
			depth++
		case '}':
			depth = max(0, depth-1)
		case '"':
			name := quoted(b[i:])
			if name == nil {
				return t
			}
			i += len(name) - 1
			at, err := skipByte(b, i+1, ':')
			if err != nil || depth != 1 || !isName(name, "type") {
				continue
			}
			if value := quoted(b[skipSpace(b, at):]); value != nil && (t == "" || !t.Terminal() && Type(unquote(value)).Terminal()) {
				t = Type(unquote(value))
			}
		}
	}
	return t
}

// quoted returns the string at the start of b with its quotes, whatever is between them; nil if there is none.
func quoted(b []byte) []byte {
	for i := 1; i < len(b) && b[0] == '"'; i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return b[:i+1]
		}
	}
	return nil
}

// RunErrorOf returns a RUN_ERROR.
func RunErrorOf(message, code string) json.RawMessage {
	b := AppendString([]byte(`{"type":"RUN_ERROR","message":`), message)
	return append(AppendString(append(b, `,"code":`...), code), '}')
}

// Decode reads one event. The event aliases b, which must not change while the event is in use. If the protocol's schema rejects
// the event, IsMalformed is true for the error; unknown types and members are no error.
func Decode(b []byte) (*Event, error) {
	e := new(Event)
	if err := e.Decode(b); err != nil {
		return nil, err
	}
	return e, nil
}

// Decode is like the function Decode, but reuses e.
func (e *Event) Decode(b []byte) error {
	e.reset()
	if err := e.scan(b); err != nil {
		return err
	}
	if e.beyond {
		if err := e.scan(withinDoubles(b)); err != nil {
			return err
		}
		e.Raw = b
	}
	if err := e.checkCount(); err != nil {
		return err
	}
	e.upgrade()
	return e.check()
}

func (e *Event) reset() {
	e.ThreadID, e.RunID, e.ParentRunID, e.Timestamp, e.HasTimestamp = "", "", "", 0, false
	e.beyond, e.extras = false, e.extras[:0]
}

// scan checks the JSON and records the positions of the top-level members.
func (e *Event) scan(b []byte) error {
	if !utf8.Valid(b) {
		return errNotUTF8
	}
	err := e.scanDepth(b, MaxDepth)
	if err != errTooDeep { //nolint:errorlint // made here, never wrapped
		return err
	}
	// Some types may be nested deeper, but the type is known only after all members were read.
	if err = e.scanDepth(b, MaxEventDepth); err == nil {
		depth := e.Type.maxDepth()
		err = atDepth(e.scanDepth(b, depth), e.Type, depth)
	}
	return err
}

// scanDepth is scan with the limit depth; it returns errTooDeep if the event is nested deeper.
func (e *Event) scanDepth(b []byte, depth int) error {
	e.has, e.undescribed = 0, false
	i := skipSpace(b, 0)
	if i >= len(b) {
		return errTruncated
	}
	if b[i] != '{' {
		if err := Check(b); err != nil {
			return err
		}
		return errNotObject
	}
	i = skipSpace(b, i+1)
	for first := true; ; first = false {
		if i >= len(b) {
			return errTruncated
		}
		if b[i] == '}' && first {
			i++
			break
		}
		if b[i] != '"' {
			return syntaxAt(i)
		}
		nameEnd, err := skipString(b, i)
		if err != nil {
			return err
		}
		name := b[i+1 : nameEnd-1]
		if i, err = skipByte(b, nameEnd, ':'); err != nil {
			return err
		}
		i = skipSpace(b, i)
		end, err := skipNoting(b, i, within(depth)+1, &e.beyond)
		if err != nil {
			return err
		}
		if f, ok := lookupField(name); ok {
			e.has |= 1 << f
			e.spans[f] = [2]uint32{uint32(i), uint32(end)}
		} else {
			e.undescribed = true
		}
		i = skipSpace(b, end)
		if i >= len(b) {
			return errTruncated
		}
		if b[i] == '}' {
			i++
			break
		}
		if b[i] != ',' {
			return syntaxAt(i)
		}
		i = skipSpace(b, i+1)
	}
	if i = skipSpace(b, i); i != len(b) {
		return syntaxAt(i)
	}
	e.Raw, e.Body = b, b
	t := e.JSON(FieldType)
	if kindOf(t) != kindString || len(t) == 2 {
		return errNoType
	}
	name := t[1 : len(t)-1]
	if e.spec = specs[Type(name)]; e.spec == nil {
		e.Type, e.spec = Type(unquote(t)), specs[Type(unquote(t))]
		if e.spec == nil {
			e.spec = &unknownSpec
		}
		return nil
	}
	e.Type = e.spec.name // avoids copying a known name
	return nil
}

// secondsBelow is 1e11: read as milliseconds, that is a day in March 1973; read as seconds, the year 5138.
const secondsBelow = 100_000_000_000

func lookupField(name []byte) (Field, bool) {
	f, ok := fieldNamed(name)
	if !ok && bytes.IndexByte(name, '\\') >= 0 {
		f, ok = fieldNamed([]byte(Text(name).String()))
	}
	return f, ok
}

// check checks the members against the schema of the event's type and fills the decoded fields.
func (e *Event) check() error {
	if e.Has(FieldTimestamp) {
		if n, ok := safeInt(e.JSON(FieldTimestamp)); ok {
			e.setTimestamp(n)
		}
	}
	for _, s := range e.spec.members {
		if e.has&(1<<s.field) == 0 {
			if s.required {
				return malformed(e.Type, "%s is missing", s.field)
			}
			continue
		}
		if s.field == FieldTimestamp && e.HasTimestamp {
			continue // checked above
		}
		if err := s.check(e.Type, s.field, e.JSON(s.field)); err != nil {
			return err
		}
	}
	switch e.Type {
	case RunStarted, RunFinished:
		e.ThreadID, _ = e.String(FieldThreadID)
		e.RunID, _ = e.String(FieldRunID)
		e.ParentRunID, _ = e.String(FieldParentRunID)
	}
	return nil
}

func (e *Event) setTimestamp(n int64) {
	if n > -secondsBelow && n < secondsBelow {
		n *= 1000
	}
	e.Timestamp, e.HasTimestamp = n, true
}

// Time returns the event's timestamp, or the zero time unless it lies between 1970 and 9999, the last year of RFC 3339. (A
// timestamp in microseconds, for example, is later.)
func (e *Event) Time() time.Time {
	const last = 253402300799999
	if !e.HasTimestamp || e.Timestamp <= 0 || e.Timestamp > last {
		return time.Time{}
	}
	return time.UnixMilli(e.Timestamp).UTC()
}

// Has reports whether the member is present.
func (e *Event) Has(f Field) bool { return e.has&(1<<f) != 0 }

// HasUndescribed reports whether the event has a member that the protocol does not describe for its type.
func (e *Event) HasUndescribed() bool { return e.undescribed || e.has&^e.spec.described != 0 }

// JSON returns the member's value, or nil if it is absent.
func (e *Event) JSON(f Field) json.RawMessage {
	if !e.Has(f) {
		return nil
	}
	s := e.spans[f]
	if s[0] == inExtras {
		return e.extras[s[1]]
	}
	return e.Body[s[0]:s[1]]
}

// String returns the decoded value of a string member, and whether the member is present.
func (e *Event) String(f Field) (string, bool) {
	v := e.JSON(f)
	if kindOf(v) != kindString {
		return "", false
	}
	return unquote(v), true
}

// Text returns the value of a string member, still escaped, or nil if the member is absent.
func (e *Event) Text(f Field) Text {
	v := e.JSON(f)
	if kindOf(v) != kindString {
		return nil
	}
	return TextOf(v)
}

// Messages returns the messages of a MESSAGES_SNAPSHOT in order, and how many others it leaves out: those without a
// role, or with an unknown one and no id.
func (e *Event) Messages() (messages []Message, stripped int) {
	return messagesOf(e.JSON(FieldMessages))
}

// Input returns RUN_STARTED's input, or nil if it has none. The input shares no memory with the event. Ids made for
// messages contain run, or the event's runId if run is empty.
func (e *Event) Input(run string) *RunAgentInput {
	v := e.JSON(FieldInput)
	if e.Type != RunStarted || v == nil {
		return nil
	}
	in, err := decodeInput(bytes.Clone(v), cmp.Or(run, e.RunID), true)
	if err != nil { // impossible: check has accepted it
		return nil
	}
	return in
}

// OutcomeType returns the type of RUN_FINISHED's outcome. It returns "success" if the outcome is absent or of an unknown type.
func (e *Event) OutcomeType() string {
	switch t := stringOrNone(Lookup(e.JSON(FieldOutcome), "type")); t {
	case "interrupt", "cancelled":
		return t
	default:
		return "success"
	}
}

func (e *Event) drop(f Field) { e.has &^= 1 << f }

func (e *Event) set(f Field, v json.RawMessage) {
	e.has |= 1 << f
	e.spans[f] = [2]uint32{inExtras, uint32(len(e.extras))}
	e.extras = append(e.extras, v)
}

func (e *Event) rename(from, to Field) {
	if e.Has(from) && !e.Has(to) {
		e.has |= 1 << to
		e.spans[to] = e.spans[from]
	}
	e.drop(from)
}
