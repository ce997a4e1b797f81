package ingest

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/skeinhq/skein/pkg/agui"
)

// ErrUnavailable says that the stage is not ready: Kafka does not answer, the partition counts are not
// known, or they are not what they were. The text around it says which.
var ErrUnavailable = errors.New("unavailable")

// The reasons of refusals, beside the rules of agui.MalformedError.
const (
	reasonTooLarge    = "too-large"
	reasonCut         = "cut"
	reasonEncoding    = "bad-encoding"
	reasonTimeout     = "timeout"
	reasonDone        = "done-marker"
	reasonNoArray     = "not-an-array"
	reasonSeq         = "no-seq"
	reasonSeqOrder    = "seq-order"
	reasonUnavailable = "unavailable"
	reasonMediaType   = "media-type"
	reasonID          = "invalid-id"
	reasonHeader      = "invalid-header"
	reasonAuth        = "unauthenticated"
	reasonScope       = "forbidden"
	reasonInternal    = "internal"
	reasonNotEnded    = "not-ended"
	reasonAgent       = "no-agent"
	reasonHeld        = "run-under-way"
	reasonUsed        = "run-ended"
)

// reasons are all of them, for the metrics.
func reasons() []string {
	return []string{
		agui.RuleNotJSON, agui.RuleTooDeep, agui.RuleNotObject, agui.RuleNoType, agui.RuleSchema,
		reasonTooLarge, reasonCut, reasonEncoding, reasonTimeout, reasonDone, reasonNoArray, reasonSeq, reasonSeqOrder,
		reasonUnavailable, reasonMediaType, reasonID, reasonHeader, reasonAuth, reasonScope, reasonInternal, reasonNotEnded, reasonAgent, reasonHeld, reasonUsed,
	}
}

// rejection is a refusal of what the caller has sent.
type rejection struct {
	status int
	reason string
	// line is where in the body, from 1; 0 where it is about no place in it.
	line   int64
	detail string
	// more: the reader that has refused an event can go on behind it.
	more bool
}

// andOn says of a refusal that more events can be read behind it.
func (r *rejection) andOn() *rejection {
	r.more = true
	return r
}

func (r *rejection) Error() string {
	if r.line > 0 {
		return fmt.Sprintf("line %d: %s", r.line, r.detail)
	}
	return r.detail
}

func reject(status int, reason string, line int64, format string, args ...any) *rejection {
	return &rejection{status: status, reason: reason, line: line, detail: fmt.Sprintf(format, args...)}
}

func badLine(reason string, line int64, format string, args ...any) *rejection {
	return reject(http.StatusBadRequest, reason, line, format, args...)
}

func tooLarge(line int64, limit int) *rejection {
	return reject(http.StatusRequestEntityTooLarge, reasonTooLarge, line, "larger than the limit of %d bytes", limit)
}

// malformed turns an error of package agui into a refusal.
func malformed(err error, line int64) *rejection {
	var m *agui.MalformedError
	if errors.As(err, &m) {
		return badLine(m.Rule, line, "%s", m.Detail)
	}
	return badLine(agui.RuleNotJSON, line, "%v", err)
}
