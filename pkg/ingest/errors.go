package ingest

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/quota"
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
	reasonRatio       = "inflates-too-much"
	reasonNoEvent     = "no-event"
	reasonMemory      = "memory"
	reasonQuota       = "quota"
)

// reasons are all of them, for the metrics.
func reasons() []string {
	return []string{
		agui.RuleNotJSON, agui.RuleTooDeep, agui.RuleNotObject, agui.RuleNoType, agui.RuleSchema,
		reasonTooLarge, reasonCut, reasonEncoding, reasonTimeout, reasonDone, reasonNoArray, reasonSeq, reasonSeqOrder,
		reasonUnavailable, reasonMediaType, reasonID, reasonHeader, reasonAuth, reasonScope, reasonInternal, reasonNotEnded, reasonAgent, reasonHeld, reasonUsed,
		agui.RuleTooMany, agui.RuleTime, reasonRatio, reasonNoEvent, reasonMemory, reasonQuota,
	}
}

// rejection is a refusal of what the caller has sent.
type rejection struct {
	status int
	reason string
	// line is where in the body, from 1; 0 where it is about no place in it.
	line   int64
	detail string
	// limit names what the tenant has used up, for 429; retry is when to come again.
	limit string
	retry time.Duration
	// more: the reader that has refused an event can go on behind it.
	more bool
}

// andOn says of a refusal that more events can be read behind it.
func (r *rejection) andOn() *rejection {
	r.more = true
	return r
}

// retryIn says when it is worth trying again.
func (r *rejection) retryIn(wait time.Duration) *rejection {
	r.retry = wait
	return r
}

// overQuota is the refusal of what a tenant's quota does not have.
func overQuota(err error, line int64) *rejection {
	var exceeded *quota.ExceededError
	if !errors.As(err, &exceeded) { // the process ends
		return reject(http.StatusServiceUnavailable, reasonUnavailable, line, "%v", errDraining).retryIn(time.Second)
	}
	rej := reject(http.StatusTooManyRequests, reasonQuota, line, "%v", err).retryIn(exceeded.RetryAfter)
	rej.limit = exceeded.Kind.String()
	return rej
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
