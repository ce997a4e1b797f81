package query

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/live"
	"github.com/skeinhq/skein/pkg/tail"
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

// finish sends the end of the stream and returns why the stream ended, which metrics count. If the stream has not
// begun, finish returns the refusal too.
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

// These are the reasons for the end of a stream, for metrics.
const (
	endRun     = "run"     // the run has ended and was sent whole
	endLife    = "life"    // --stream-life has passed
	endSlow    = "slow"    // the reader did not keep up
	endErased  = "erased"  // the thread was erased
	endDrain   = "drain"   // the process stops
	endRoom    = "room"    // the tenant's streams and reads use all of its memory
	endRevoked = "revoked" // the reader's credentials expired or were revoked
	endLeft    = "left"    // the reader disconnected
	endRefused = "refused" // the request was refused
	endFailed  = "failed"  // something else went wrong
)

// endError ends a stream that has begun.
type endError struct {
	why    string // for metrics
	detail string // for the reader, as a comment
	// event is a RUN_ERROR to send first; nil if the reader can resume.
	event []byte
}

func (e *endError) Error() string { return e.detail }

var (
	errLife     = &endError{why: endLife, detail: "the stream has reached its longest life; resume from the last id"}
	errSlow     = &endError{why: endSlow, detail: "the stream was not read fast enough; resume from the last id"}
	errDraining = &endError{why: endDrain, detail: "this process is stopping; resume from the last id"}
	errRoom     = &endError{why: endRoom, detail: "the memory that the tenant may use for streams and reads is used up; resume from the last id"}
)

// lost maps an error of the tail reader to the error that ends the stream.
func (s *stream) lost(err error) error {
	switch {
	case s.ctx.Err() != nil:
		return context.Cause(s.ctx)
	case errors.Is(err, tail.ErrSlow):
		return errSlow
	case errors.Is(err, tail.ErrClosed):
		return errDraining
	case errors.Is(err, tail.ErrGone) && s.resumes():
		return s.refuseID(http.StatusGone, "%s is older than skein.events keeps; leave it out to join", s.from)
	}
	return err
}

// codeErased is the code of the RUN_ERROR that ends the stream of an erased thread.
const codeErased = "skein-erased"

var errErased = &endError{
	why: endErased, detail: erasedDetail, event: []byte(`{"type":"RUN_ERROR","message":"` + erasedDetail + `","code":"` + codeErased + `"}`),
}

// erased handles an erasure of the thread. It refuses a resumed stream that has not begun, ends a stream that has sent
// events, and restarts one that has sent none.
func (s *stream) erased() error {
	switch {
	case s.resumes() || !s.out.begun && !s.from.joins():
		return s.refuseErased(s.Call)
	case s.playing == nil && s.begun < 0: // nothing was sent; later events belong to a new thread
		thread, err := live.New(s.threadID, nil, s.through, &recordsOfThread{stream: s}, s.until != tail.End)
		s.thread, s.rows = thread, nil
		s.out.comment(erasedDetail) // for a reader that shows what the thread was
		return err
	}
	return errErased
}
