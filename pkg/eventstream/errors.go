package eventstream

import (
	"errors"
	"fmt"

	"github.com/skeinhq/skein/pkg/agui"
)

// Reasons of errors, besides the rules of package agui.
const (
	ReasonTooLarge = "too-large"
	ReasonDone     = "done-marker"
	ReasonNoArray  = "not-an-array"
	ReasonSeq      = "no-seq"
	ReasonSeqOrder = "seq-order"
)

// Error describes bytes that are not an event. A reader's other errors come from the underlying reader or from
// Memory.Acquire.
type Error struct {
	// Line is the line on which the fault begins, from 1.
	Line int64
	// Reason is a stable code; Detail is a text for people.
	Reason, Detail string
	// More means that Next can continue with the events after this one.
	More bool
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Detail) }

func bad(line int64, reason, format string, args ...any) *Error {
	return &Error{Line: line, Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// andMore sets More.
func (e *Error) andMore() *Error {
	e.More = true
	return e
}

func tooLarge(line int64, limit int) *Error {
	return bad(line, ReasonTooLarge, "larger than the limit of %d bytes", limit)
}

func malformed(line int64, err error) *Error {
	var m *agui.MalformedError
	if errors.As(err, &m) {
		return bad(line, m.Rule, "%s", m.Detail)
	}
	return bad(line, agui.RuleNotJSON, "%v", err)
}
