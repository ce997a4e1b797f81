package query

import (
	"errors"
	"net/http"
	"time"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// badRequest refuses what the caller has written.
func badRequest(detail string) error {
	return &front.Problem{Status: http.StatusBadRequest, Detail: detail}
}

// later refuses what will be there soon: the index or another part is behind.
func later(detail string) error {
	return &front.Problem{Status: http.StatusServiceUnavailable, Detail: detail, Retry: time.Second}
}

// tooEarly refuses where the index did not get to atLeast in time, and there is nothing to answer without it.
func tooEarly() error {
	return &front.Problem{Status: http.StatusTooEarly, Retry: time.Second, Detail: "the index has not got to atLeast yet; try again"}
}

// isNoRoom reports whether an error refuses memory.
func isNoRoom(err error) bool {
	var p *front.Problem
	return errors.As(err, &p) && p.Reason == front.ReasonMemory
}

// errBroken marks data that does not fit together: to try again does not help.
var errBroken = errors.New("broken data")

// explain returns the answer of an error whose text is not for the caller, and logs it once: here. A caller that has hung up gets none.
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
