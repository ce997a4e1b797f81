package query

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/skeinhq/skein/internal/problem"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/tenant"
)

// refusal is an error whose text is for the caller.
type refusal struct {
	status     int
	detail     string
	retryAfter int // seconds; 0 is none
	extensions map[string]any
}

func (r *refusal) Error() string { return r.detail }

// badRequest refuses what the caller has written.
func badRequest(detail string) error { return &refusal{status: http.StatusBadRequest, detail: detail} }

// later refuses what will be there soon: the index or another part is behind.
func later(detail string) error {
	return &refusal{status: http.StatusServiceUnavailable, detail: detail, retryAfter: 1}
}

// tooEarly refuses where the index did not get to atLeast in time, and there is nothing to answer without it.
func tooEarly() error {
	return &refusal{status: http.StatusTooEarly, retryAfter: 1, detail: "the index has not got to atLeast yet; try again"}
}

// retryAfterWeather is how long callers are asked to stay away while the store is, in seconds.
const retryAfterWeather = 2

// retryAfterUpgrade is the same where query is too old to read what a newer Skein wrote.
const retryAfterUpgrade = 60

// refusalOf says how an error is answered; ours reports whether it is a fault on this side, which
// the caller hears nothing of but that, and the log says.
func refusalOf(err error) (r *refusal, ours bool) {
	if errors.As(err, &r) {
		return r, false
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return &refusal{status: http.StatusNotFound, detail: "there is no such thread or run"}, false
	case errors.Is(err, tenant.ErrRevoked), errors.Is(err, tenant.ErrExpired):
		return &refusal{status: http.StatusUnauthorized, detail: "the credentials have expired or were revoked"}, false
	case errors.Is(err, tenant.ErrUnauthenticated):
		return &refusal{status: http.StatusUnauthorized, detail: "the request carries no credentials that are known"}, false
	case errors.Is(err, record.ErrUnknownVersion):
		return &refusal{
			status: http.StatusServiceUnavailable, retryAfter: retryAfterUpgrade,
			detail: "a newer version of Skein wrote what the answer needs: query has to be updated",
		}, true
	case errors.Is(err, errIndex):
		return &refusal{
			status: http.StatusServiceUnavailable, retryAfter: retryAfterWeather,
			detail: "the lineage store does not answer; try again",
		}, true
	case errors.Is(err, errBroken):
		return &refusal{status: http.StatusInternalServerError, detail: "what is stored of this thread cannot be read"}, true
	default:
		return &refusal{
			status: http.StatusServiceUnavailable, retryAfter: retryAfterWeather,
			detail: "the answer cannot be given now; try again",
		}, true
	}
}

// errBroken marks data that does not fit together: to try again does not help.
var errBroken = errors.New("broken data")

// write answers with the refusal as a problem document.
func (r *refusal) write(w http.ResponseWriter) {
	if r.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(r.retryAfter))
	}
	if r.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", tenant.Challenge)
	}
	problem.Write(w, problem.Problem{Status: r.status, Detail: r.detail, Extensions: r.extensions})
}
