package query

import (
	"errors"
	"net/http"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/store"
)

// badRequest returns a 400 problem for an invalid request.
func badRequest(format string, args ...any) error {
	return front.Refuse(http.StatusBadRequest, "", format, args...)
}

// later returns a 503 problem for data that will be available soon: the index or another component lags.
func later(detail string) error {
	return &front.Problem{Status: http.StatusServiceUnavailable, Detail: detail, Retry: time.Second}
}

// isNoRoom reports whether an error is a refusal for lack of memory.
func isNoRoom(err error) bool {
	p, ok := errors.AsType[*front.Problem](err)
	return ok && p.Reason == front.ReasonMemory
}

// errBroken marks stored data that is inconsistent. A retry does not help.
var errBroken = errors.New("broken data")

const erasedDetail = "the thread was erased"

// checkErased returns a 410 problem if the call's thread was erased at an offset, which may be -1.
func (s *Service) checkErased(c *front.Call, offset int64) error {
	if c.Audit.Thread == "" {
		return nil
	}
	e, err := s.store.Erasure(c.R.Context(), c.Tenant, c.Audit.Thread)
	switch {
	case errors.Is(err, store.ErrNotFound) || err == nil && offset >= e.Below:
		return nil
	case err != nil:
		return err
	}
	return front.Refuse(http.StatusGone, front.ReasonErased, "%s at %s", erasedDetail, e.At.UTC().Format(time.RFC3339))
}

// refuseErased returns the 410 problem for an erased thread. It names the time if the index knows of the erasure.
func (s *Service) refuseErased(c *front.Call) error {
	if p, ok := errors.AsType[*front.Problem](s.checkErased(c, -1)); ok {
		return p
	}
	return front.Refuse(http.StatusGone, front.ReasonErased, "%s", erasedDetail)
}

// reasonEpoch is the reason of problems about positions of before a failover.
const reasonEpoch = "other-epoch"

// refuseEpoch returns the 410 problem for a position at which skein.events has no event, although it has later ones.
func refuseEpoch(at record.Position) *front.Problem {
	return front.Refuse(http.StatusGone, reasonEpoch,
		"%s is a position of before a failover, whose event was not mirrored: leave it out, and read again what you have", at)
}

// checkMirrored returns refuseEpoch's problem if it holds for a position. It returns nil if Kafka does not say.
func (c *call) checkMirrored(at record.Position) error {
	r, err := c.openRaw(at.Partition)
	if err != nil {
		return nil // the caller then goes on as for an event that was mirrored
	}
	defer r.close()
	if at.Offset < r.start || at.Offset >= r.end {
		return nil
	}
	found := false
	err = r.each(c.R.Context(), [][2]int64{{at.Offset, at.Offset + 1}}, func(*kgo.Record) error { found = true; return nil })
	if found || err != nil {
		return nil // as above
	}
	return refuseEpoch(at)
}

// explain returns the problem for an error whose text is not for the caller. It logs the error, as nothing else does,
// unless the request is the cause. It returns nil if the caller has disconnected.
func (s *Service) explain(c *front.Call, err error) *front.Problem {
	p := &front.Problem{Status: http.StatusServiceUnavailable, Retry: 2 * time.Second,
		Detail: "the lineage store does not answer, or Kafka; try again"}
	var bad *search.ParameterError
	switch {
	case c.R.Context().Err() != nil && !errors.Is(err, errBroken):
		return nil
	case errors.Is(err, store.ErrNotFound):
		detail := "there is no such thread or run"
		if run, ok := errors.AsType[missingRunError](err); ok {
			detail = run.Error()
		}
		err := s.checkErased(c, -1)
		if p, ok := errors.AsType[*front.Problem](err); ok {
			return p
		}
		if err == nil {
			return &front.Problem{Status: http.StatusNotFound, Detail: detail}
		}
	case errors.As(err, &bad):
		return front.Refuse(http.StatusBadRequest, "", "%v", bad)
	case errors.Is(err, search.ErrTooMuch):
		p = front.Refuse(http.StatusUnprocessableEntity, "",
			"the search reads more than %d rows or takes more than %v: narrow it by prefix, or by since, until, agent or status where it has words or rewrote",
			s.cfg.Search.Rows, s.cfg.Search.Time)
		p.Limit = "search"
		return p
	case errors.Is(err, record.ErrUnknownVersion):
		p.Retry, p.Detail = time.Minute, "a newer version of Skein wrote what the answer needs: query has to be updated"
	case errors.Is(err, errBroken):
		p = &front.Problem{Status: http.StatusInternalServerError, Detail: "what is stored of this thread cannot be read"}
	}
	s.cfg.Logger.ErrorContext(c.R.Context(), "request failed",
		"tenant", c.Tenant, "thread_id", c.Audit.Thread, "run_id", c.Audit.Run, "error", err)
	return p
}
