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

// Event is one AG-UI event: its exact bytes and where its members lie in them. Members that the
// protocol does not describe for the event's type stay in Raw and nowhere else.
type Event struct {
	// Type is the event's type after the upgrade table was applied; Raw keeps the older form.
	Type Type
	// Raw is the event as it came. It aliases the bytes given to Decode.
	Raw json.RawMessage
	// Body is what is folded and kept of it: Raw, with null in the place of numbers that no double can hold, as 1e400.
	// The client has infinity there until it writes null, and other readers refuse such a number.
	Body json.RawMessage

	// ThreadID, RunID and ParentRunID are what RUN_STARTED and RUN_FINISHED name.
	ThreadID, RunID, ParentRunID string
	// Timestamp is the agent's, in milliseconds since 1970. The protocol names no unit: most agents
	// send milliseconds, llama-index seconds. Values that would lie before March 1973 in
	// milliseconds are taken for seconds.
	Timestamp    int64
	HasTimestamp bool

	spec        *spec                // of Type; of no members for an unknown one
	undescribed bool                 // a member that no event type has
	beyond      bool                 // a number that no double can hold
	has         uint64               // bit f: member f is there
	spans       [numFields][2]uint32 // of Body, or {^0, index} of extras
	extras      []json.RawMessage    // values that the upgrade table made
}

const inExtras = ^uint32(0)

// Envelope checks what ingest demands of an event: one JSON object in UTF-8, with a type, nested no deeper than one of
// that type may be. It returns the type as it stands. The error is one for which IsMalformed is true.
func Envelope(b []byte) (Type, error) {
	var e Event
	if err := e.scan(b); err != nil {
		return "", err
	}
	return e.Type, nil
}

// Decode reads one event. The event aliases b, which must not change while it is in use. An event
// that the protocol's schema rejects gives an error for which IsMalformed is true; unknown types and
// members are no error.
func Decode(b []byte) (*Event, error) {
	e := new(Event)
	if err := e.Decode(b); err != nil {
		return nil, err
	}
	return e, nil
}

// Decode is the function Decode into an event that is used again.
func (e *Event) Decode(b []byte) error {
	e.ThreadID, e.RunID, e.ParentRunID, e.Timestamp, e.HasTimestamp = "", "", "", 0, false
	e.beyond, e.extras = false, e.extras[:0]
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

// scan checks the JSON and notes where the members of the top level lie.
func (e *Event) scan(b []byte) error {
	if !utf8.Valid(b) {
		return errNotUTF8
	}
	err := e.scanDepth(b, MaxDepth)
	if err != errTooDeep { //nolint:errorlint // made here, never wrapped
		return err
	}
	// Some types may be deeper. Which one this is, only a look at all of it tells.
	if err = e.scanDepth(b, MaxEventDepth); err == nil {
		depth := e.Type.maxDepth()
		err = atDepth(e.scanDepth(b, depth), e.Type, depth)
	}
	return err
}

// scanDepth is scan with a limit; errTooDeep says that it is passed, whatever that is.
func (e *Event) scanDepth(b []byte, depth int) error {
	e.has, e.undescribed = 0, false // spans count where has says so
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
	e.Type = e.spec.name // no copy of what is known
	return nil
}

// secondsBelow is 1e11: in milliseconds a day in March 1973, in seconds the year 5138.
const secondsBelow = 100_000_000_000

func lookupField(name []byte) (Field, bool) {
	f, ok := fieldNamed(name)
	if !ok && bytes.IndexByte(name, '\\') >= 0 {
		f, ok = fieldNamed([]byte(Text(name).String()))
	}
	return f, ok
}

// check holds the members against the schema of the event's type and fills the decoded fields.
func (e *Event) check() error {
	if e.Has(FieldTimestamp) {
		e.Timestamp, e.HasTimestamp = safeInt(e.JSON(FieldTimestamp))
		if e.Timestamp > -secondsBelow && e.Timestamp < secondsBelow {
			e.Timestamp *= 1000
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
			continue // read above, so it is one
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

// Time is the event's own timestamp, zero where it has none. One that is no time between 1970 and 9999,
// where RFC 3339 ends, such as one of microseconds, is none.
func (e *Event) Time() time.Time {
	const last = 253402300799999
	if !e.HasTimestamp || e.Timestamp <= 0 || e.Timestamp > last {
		return time.Time{}
	}
	return time.UnixMilli(e.Timestamp).UTC()
}

// Has reports whether the member is there.
func (e *Event) Has(f Field) bool { return e.has&(1<<f) != 0 }

// HasUndescribed reports whether the event has a member that the protocol does not describe for its type.
func (e *Event) HasUndescribed() bool { return e.undescribed || e.has&^e.spec.described != 0 }

// JSON returns the member's value, or nil where it is not there.
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

// String returns a member that is a string, decoded, and whether it is there.
func (e *Event) String(f Field) (string, bool) {
	v := e.JSON(f)
	if kindOf(v) != kindString {
		return "", false
	}
	return unquote(v), true
}

// Text returns a member that is a string, still escaped; nil where it is not there.
func (e *Event) Text(f Field) Text {
	v := e.JSON(f)
	if kindOf(v) != kindString {
		return nil
	}
	return TextOf(v)
}

// Messages returns the messages of a MESSAGES_SNAPSHOT in order, and how many others it has, which have no role, or
// an unknown one and no id.
func (e *Event) Messages() (messages []Message, stripped int) {
	return messagesOf(e.JSON(FieldMessages))
}

// Input returns RUN_STARTED's input, or nil where it has none. It shares nothing with the event. Run is the id that made
// ids of messages contain, the event's runId where it is empty.
func (e *Event) Input(run string) *RunAgentInput {
	v := e.JSON(FieldInput)
	if e.Type != RunStarted || v == nil {
		return nil
	}
	in, err := decodeInput(bytes.Clone(v), cmp.Or(run, e.RunID), true)
	if err != nil { // cannot be: check has accepted it
		return nil
	}
	return in
}

// OutcomeType returns the type of RUN_FINISHED's outcome: "success" where it has none, or one of a
// type that the protocol does not know.
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
