package agui

import (
	"errors"
	"fmt"
)

// MalformedError is the error for bad data. It rejects one event, never the stream.
type MalformedError struct {
	// Rule is a short stable name for counting, such as "not-json" or "schema".
	Rule string
	// Type is the event type, or "" if it is not known.
	Type Type
	// Detail describes the fault and where it is, for a person.
	Detail string
}

func (e *MalformedError) Error() string {
	if e.Type != "" {
		return string(e.Type) + ": " + e.Detail
	}
	return e.Detail
}

// IsMalformed reports whether err is about the data, so that a retry cannot succeed.
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
	// RuleUnknownType is for a type of no event. Only Admit returns it.
	RuleUnknownType = "unknown-type"
	// RuleChunk is for chunks that the client cannot assign to a stream, such as a first chunk without an id.
	RuleChunk = "chunk"
	// RuleTooMany is for input or snapshots over MaxMessages or MaxToolCalls, and objects over MaxMembers.
	RuleTooMany = "too-many"
	// RuleTime is for a timestamp before 1970.
	RuleTime = "before-1970"
	// RuleRepeated is for a snapshot that would repeat too many bytes of messages at several positions.
	RuleRepeated = "repeated"
)

var (
	errNotUTF8   = &MalformedError{Rule: RuleNotJSON, Detail: "not JSON: the text is not UTF-8"}
	errTruncated = &MalformedError{Rule: RuleNotJSON, Detail: "not JSON: the text ends before the value does"}
	errTooDeep   = &MalformedError{Rule: RuleTooDeep, Detail: fmt.Sprintf("nested more than %d deep", MaxDepth)}
	errNotObject = &MalformedError{Rule: RuleNotObject, Detail: "not a JSON object"}
	errNoType    = &MalformedError{Rule: RuleNoType,
		Detail: "no type: an event needs a member \"type\" that is a string with a character in it"}
)

func syntaxAt(i int) error {
	return &MalformedError{Rule: RuleNotJSON, Detail: fmt.Sprintf("not JSON: unexpected character at byte %d", i+1)}
}

// atDepth replaces errTooDeep by an error that names the limit, if the limit is not MaxDepth.
func atDepth(err error, t Type, depth int) error {
	if err == errTooDeep && depth != MaxDepth { //nolint:errorlint // made here, never wrapped
		return deeper(t, "", depth)
	}
	return err
}

// deeper returns the error for an event or input, or the named part of one, that is nested deeper than depth.
func deeper(t Type, what string, depth int) error {
	if what != "" {
		what += " is "
	}
	return &MalformedError{Rule: RuleTooDeep, Type: t, Detail: fmt.Sprintf("%snested more than %d deep", what, depth)}
}

func malformed(t Type, format string, args ...any) error {
	return &MalformedError{Rule: RuleSchema, Type: t, Detail: fmt.Sprintf(format, args...)}
}
