package front

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/tenant"
)

// Problem is an error that is sent to the caller as a problem document (RFC 9457).
type Problem struct { //nolint:errname // an error by its use, a document by its form
	// Status is the HTTP status.
	Status int
	// Reason identifies the kind of problem in the response and in metrics; it may be empty.
	Reason string
	// Detail describes what happened and what the caller can do.
	Detail string
	// Line is the line of the body that the problem concerns, from 1; 0 means none.
	Line int64
	// Limit names the limit that the tenant has reached; "" means none.
	Limit string
	// Retry is the time to wait before a retry; 0 means no Retry-After.
	Retry time.Duration
	// Members are additional members of the document, in camelCase.
	Members map[string]any
}

// Refuse returns a problem.
func Refuse(status int, reason, format string, args ...any) *Problem {
	return &Problem{Status: status, Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// Reasons that every stage uses.
const (
	ReasonID     = "invalid-id"
	ReasonAuth   = "unauthenticated"
	ReasonScope  = "forbidden"
	ReasonQuota  = "quota"
	ReasonMemory = "memory"
	ReasonErased = "erased"
	// ReasonOtherStage refuses a request that the other HTTP stage serves, ReasonNoPath one that neither does.
	ReasonOtherStage = "other-stage"
	ReasonNoPath     = "no-path"
)

func (p *Problem) Error() string {
	if p.Line > 0 {
		return fmt.Sprintf("line %d: %s", p.Line, p.Detail)
	}
	return p.Detail
}

// MarshalJSON returns the problem document, with members sorted by name.
func (p *Problem) MarshalJSON() ([]byte, error) {
	members := map[string]any{"status": p.Status, "title": http.StatusText(p.Status)}
	maps.Copy(members, p.Members)
	if p.Detail != "" {
		members["detail"] = p.Error()
	}
	if p.Reason != "" {
		members["reason"] = p.Reason
	}
	if p.Line > 0 {
		members["line"] = p.Line
	}
	if p.Limit != "" {
		members["limit"] = p.Limit
	}
	if p.Limit != "" && p.Status == http.StatusTooManyRequests {
		members["type"], members["violated-policies"] = quota.ProblemType, []string{p.Limit}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(members)
	return b.Bytes(), err
}

// ProblemOf returns the problem of an error that all stages handle alike. For other errors, it returns nil.
func ProblemOf(err error) *Problem {
	p, over := new(Problem), new(quota.ExceededError)
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &over):
		p = Refuse(http.StatusTooManyRequests, ReasonQuota, "%v", over)
		p.Limit, p.Retry = over.Kind.String(), over.RetryAfter
		return p
	case errors.Is(err, tenant.ErrRevoked), errors.Is(err, tenant.ErrExpired):
		return Refuse(http.StatusUnauthorized, ReasonAuth, "the credentials have expired or were revoked")
	case errors.Is(err, tenant.ErrUnauthenticated):
		return Refuse(http.StatusUnauthorized, ReasonAuth, "the request has no credentials, or unknown ones")
	}
	return nil
}

// WriteProblem sends a problem as the response. It keeps headers that are already set, such as Allow.
func WriteProblem(w http.ResponseWriter, p *Problem) {
	h := w.Header()
	if p.Retry > 0 {
		h.Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(p.Retry.Seconds())))))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", tenant.Challenge)
	}
	body, err := p.MarshalJSON()
	if err != nil { // a value of Members that is not JSON: a bug, never the caller's fault
		p = Refuse(http.StatusInternalServerError, "", "%v", err)
		body, _ = p.MarshalJSON()
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // fails only if the caller has disconnected
}
