package query

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/tenant"
)

// Drain ends all live streams and refuses new ones. Each stream ends with an id from which another process can resume.
func (s *Service) Drain() { s.drain(errDraining) }

// attach streams one run, or the runs of a thread.
func (c *call) attach() error {
	from, err := c.cursor()
	if err != nil {
		return err
	}
	if from.seq >= 0 && c.runID == "" {
		return badRequest(headerLastEventID + ": seq numbers the events of one run; use that run's stream")
	}
	if c.R.Method == http.MethodHead {
		c.Send(http.StatusOK, typeSSE, nil)
		return nil
	}
	return c.live(c.runID, from, false)
}

// live serves a stream to its end.
func (c *call) live(runID string, from cursor, once bool) error {
	select {
	case <-c.draining.Done():
		return later("this process is stopping; try again")
	default:
	}
	ctx, cancel := context.WithCancelCause(c.R.Context())
	defer cancel(nil)
	defer context.AfterFunc(c.draining, func() { cancel(errDraining) })()
	// A random part makes streams that began together end at different times.
	life := c.cfg.StreamLife - time.Duration(rand.Int64N(int64(c.cfg.StreamLife/10)+1))
	ctx, end := context.WithTimeoutCause(ctx, life, errLife)
	defer end()
	s, err := c.newStream(ctx, runID, from)
	if err != nil {
		return err
	}
	if err := s.weigh(); err != nil {
		return err
	}
	s.once, c.load.lateAfter, c.load.late = once, c.cfg.StreamHeartbeat, s.late
	c.metrics.streams.Inc()
	defer c.metrics.streams.Dec()
	why, err := s.finish(s.serve())
	c.metrics.ended.WithLabelValues(why).Inc()
	return err
}

// finish sends the end of the stream and returns its reason for the metrics. If the stream has not begun, it returns
// the refusal too.
func (s *stream) finish(err error) (why string, refused error) {
	end, refusal := new(endError), new(front.Problem)
	if err != nil && s.ctx.Err() != nil && s.R.Context().Err() == nil { // the process drains during a call
		err = context.Cause(s.ctx)
	}
	switch {
	case err == nil:
		return endRun, nil
	case tenant.Revoked(s.R.Context()) && !s.out.begun:
		return endRevoked, tenant.ErrRevoked
	case tenant.Revoked(s.R.Context()):
		end.why, end.detail = endRevoked, tenant.ErrRevoked.Error()
	case errors.Is(err, errCaller) && errors.Is(err, os.ErrDeadlineExceeded):
		return endSlow, nil
	case errors.Is(err, errCaller), s.R.Context().Err() != nil:
		return endLeft, nil //nolint:nilerr // the caller has left
	case !s.out.begun && errors.As(err, &end):
		return end.why, later(end.detail)
	case !s.out.begun:
		return endRefused, err
	case isNoRoom(err):
		*end = *errRoom
	case errors.As(err, &refusal): // found after the stream had begun, as it had to wait for a slot
		end.why, end.detail = endRefused, refusal.Detail
	case errors.As(err, &end):
		if end.event != nil {
			s.out.event(end.event, nil)
		}
	default:
		end.why, end.detail = endFailed, "the stream broke off; resume from the last id"
		s.cfg.Logger.ErrorContext(s.ctx, "live stream broken off", "tenant", s.Tenant, "thread_id", s.threadID, "run_id", s.runID, "error", err)
	}
	if end.detail != "" {
		s.out.comment(end.detail)
	}
	if err := s.out.flush(); err != nil {
		return endLeft, nil //nolint:nilerr // the caller has left
	}
	return end.why, nil
}
