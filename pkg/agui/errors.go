package agui

import (
	"errors"
	"fmt"
)

// MalformedError says why data is not what it claims to be. It costs the event, never the stream.
type MalformedError struct {
	// Rule is a short fixed name for counting, such as "not-json" or "schema".
	Rule string
	// Type is the event type, where it was known.
	Type Type
	// Detail says where and what, for a person.
	Detail string
}

func (e *MalformedError) Error() string {
	if e.Type != "" {
		return string(e.Type) + ": " + e.Detail
	}
	return e.Detail
}

// IsMalformed reports whether err is about the data, so that trying again is of no use.
func IsMalformed(err error) bool {
	var m *MalformedError
	return errors.As(err, &m)
}

// The rules of MalformedError.
const (
	RuleNotJSON   = "not-json"
	RuleTooDeep   = "too-deep"
	RuleNotObject = "not-an-object"
	RuleNoType    = "no-type"
	RuleSchema    = "schema"
	// RuleChunk is for chunks that the client cannot place, such as a first one without an id.
	RuleChunk = "chunk"
	// RuleTooMany is for more than MaxMessages or MaxToolCalls in one input or snapshot, or than MaxMembers in one object.
	RuleTooMany = "too-many"
	// RuleTime is for a timestamp before 1970.
	RuleTime = "before-1970"
	// RuleRepeated is for a snapshot that would put messages in several places, too large for all of them.
	RuleRepeated = "repeated"
)

var (
	errNotUTF8   = &MalformedError{Rule: RuleNotJSON, Detail: "not JSON: the text is not UTF-8"}
	errTruncated = &MalformedError{Rule: RuleNotJSON, Detail: "not JSON: the text ends before the value does"}
	errTooDeep   = &MalformedError{Rule: RuleTooDeep, Detail: fmt.Sprintf("nested more than %d deep", MaxDepth)}
	errNotObject = &MalformedError{Rule: RuleNotObject, Detail: "not a JSON object"}
	errNoType    = &MalformedError{Rule: RuleNoType, Detail: "no type: an event needs a member \"type\" that is a string with a character in it"}
)

func syntaxAt(i int) error {
	return &MalformedError{Rule: RuleNotJSON, Detail: fmt.Sprintf("not JSON: unexpected character at byte %d", i+1)}
}

// atDepth says which limit a text has, where that is not MaxDepth.
func atDepth(err error, t Type, depth int) error {
	if err == errTooDeep && depth != MaxDepth { //nolint:errorlint // made here, never wrapped
		return deeper(t, "", depth)
	}
	return err
}

// deeper is the error of a part of an event or input, or of all of it, that is nested more than so deep.
func deeper(t Type, what string, depth int) error {
	if what != "" {
		what += " is "
	}
	return &MalformedError{Rule: RuleTooDeep, Type: t, Detail: fmt.Sprintf("%snested more than %d deep", what, depth)}
}

func malformed(t Type, format string, args ...any) error {
	return &MalformedError{Rule: RuleSchema, Type: t, Detail: fmt.Sprintf(format, args...)}
}
