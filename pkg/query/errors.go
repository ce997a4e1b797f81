package query

import (
	"errors"
	"net/http"
	"time"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// badRequest returns a 400 problem for an invalid request.
func badRequest(detail string) error {
	return &front.Problem{Status: http.StatusBadRequest, Detail: detail}
}

// later returns a 503 problem for data that will be available soon: the index or another component lags.
func later(detail string) error {
	return &front.Problem{Status: http.StatusServiceUnavailable, Detail: detail, Retry: time.Second}
}

// tooEarly returns a 425 problem. It is for calls that cannot be answered until the index reaches atLeast.
func tooEarly() error {
	return &front.Problem{Status: http.StatusTooEarly, Retry: time.Second, Detail: "the index has not got to atLeast yet; try again"}
}

// isNoRoom reports whether an error is a refusal for lack of memory.
func isNoRoom(err error) bool {
	var p *front.Problem
	return errors.As(err, &p) && p.Reason == front.ReasonMemory
}

// errBroken marks stored data that is inconsistent. A retry does not help.
var errBroken = errors.New("broken data")

// explain returns the problem for an error whose text is not for the caller, and logs the error; nothing else logs it.
// It returns nil if the caller has disconnected.
func (s *Service) explain(c *front.Call, err error) *front.Problem {
	p := &front.Problem{Status: http.StatusServiceUnavailable, Retry: 2 * time.Second,
		Detail: "the lineage store does not answer, or Kafka; try again"}
	switch {
	case c.R.Context().Err() != nil && !errors.Is(err, errBroken):
		return nil
	case errors.Is(err, store.ErrNotFound):
		return &front.Problem{Status: http.StatusNotFound, Detail: "there is no such thread or run"}
	case errors.Is(err, record.ErrUnknownVersion):
		p.Retry, p.Detail = time.Minute, "a newer version of Skein wrote what the answer needs: query has to be updated"
	case errors.Is(err, errBroken):
		p = &front.Problem{Status: http.StatusInternalServerError, Detail: "what is stored of this thread cannot be read"}
	}
	s.cfg.Logger.ErrorContext(c.R.Context(), "request failed",
		"tenant", c.Tenant, "thread_id", c.Audit.Thread, "run_id", c.Audit.Run, "error", err)
	return p
}
