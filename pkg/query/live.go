package query

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/tenant"
)

// streams are the open live streams of the process.
type streams struct {
	metrics *liveMetrics
	// draining is done when the process starts to stop.
	draining context.Context
	drain    context.CancelCauseFunc
}

func newStreams(cfg Config) (*streams, error) {
	m, err := newLiveMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	s := &streams{metrics: m}
	s.draining, s.drain = context.WithCancelCause(context.Background())
	return s, nil
}

// Drain ends all live streams, each with an id that another process resumes from, and refuses new ones.
func (s *Service) Drain() { s.streams.drain(errDraining) }

// attach streams a run, or a thread's runs.
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
	streams := c.streams
	select {
	case <-streams.draining.Done():
		return later("this process is stopping; try again")
	default:
	}
	ctx, cancel := context.WithCancelCause(c.R.Context())
	defer cancel(nil)
	defer context.AfterFunc(streams.draining, func() { cancel(errDraining) })()
	s, err := c.newStream(ctx, runID, from)
	if err != nil {
		return err
	}
	if err := s.weigh(); err != nil {
		return err
	}
	s.once, c.load.await = once, s.await
	streams.metrics.open.Inc()
	defer streams.metrics.open.Dec()
	why, err := s.finish(s.serve())
	streams.metrics.ended.WithLabelValues(why).Inc()
	return err
}

// finish sends the end of the stream and returns its reason for the metrics, or the refusal if the stream has not begun.
func (s *stream) finish(err error) (why string, refused error) {
	end, refusal := new(endError), new(front.Problem)
	if err != nil && s.ctx.Err() != nil && s.R.Context().Err() == nil { // it drains, in the middle of a call
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
	case errors.As(err, &refusal): // found out after the stream had to begin, since it waited for its turn
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

// liveMetrics are those of live streams.
type liveMetrics struct {
	open   prometheus.Gauge
	ended  *prometheus.CounterVec
	events prometheus.Counter
}

func newLiveMetrics(reg prometheus.Registerer) (*liveMetrics, error) {
	m := &liveMetrics{
		open: prometheus.NewGauge(prometheus.GaugeOpts{Name: "skein_query_streams", Help: "Live streams that are open."}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_query_streams_ended_total",
			Help: "Live streams that ended, by reason: their run ended, nine minutes, a slow reader, a reader that left, an erased thread, a stopping process, no memory left for its tenant, ended credentials, a refusal, a failure.",
		}, []string{"reason"}),
		events: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skein_query_stream_events_total", Help: "Events sent by live streams.",
		}),
	}
	for _, why := range []string{endRun, endLife, endSlow, endErased, endDrain, endRoom, endRevoked, endLeft, endRefused, endFailed} {
		m.ended.WithLabelValues(why)
	}
	if err := errors.Join(reg.Register(m.open), reg.Register(m.ended), reg.Register(m.events)); err != nil {
		return nil, fmt.Errorf("registering metrics of live streams: %w", err)
	}
	return m, nil
}
