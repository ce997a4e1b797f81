package ingest

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/skeinhq/skein/internal/audit"
	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/internal/problem"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/tenant"
)

// Handler answers the stage's calls. It must be given requests with their paths as they came: put no
// mux that cleans paths before it.
func (s *Service) Handler() http.Handler { return http.HandlerFunc(s.serve) }

func (s *Service) serve(w http.ResponseWriter, r *http.Request) {
	w = front.NewWriter(w, s.stalledCaller)
	rt, ok, rej := parseRoute(r.URL)
	switch {
	case rej != nil:
		s.metrics.rejected.WithLabelValues(rej.reason).Inc()
		answerProblem(w, r, rej.problem(nil))
		return
	case !ok:
		endEarly(w, r)
		problem.Write(w, problem.Problem{Status: http.StatusNotFound, Detail: "there is no such call"})
		return
	case r.Method != rt.Method:
		endEarly(w, r)
		w.Header().Set("Allow", rt.Method)
		problem.Write(w, problem.Problem{Status: http.StatusMethodNotAllowed, Detail: "this call is " + rt.Method})
		return
	}
	line := audit.From(r.Context())
	line.Action, line.Route, line.Thread, line.Run, line.Agent = string(rt.call), rt.Method+" "+rt.Pattern, rt.thread, rt.run, rt.agent
	if s.draining.Load() {
		w.Header().Set("Connection", "close") // the next request finds another process
		s.unavailable(w, r, rt.call, errDraining, nil)
		return
	}
	id, err := s.auth.Authenticate(r)
	line.Tenant, line.Subject = id.Tenant, id.Name
	switch {
	case errors.Is(err, tenant.ErrUnauthenticated):
		detail := "no credentials, or unknown ones"
		if errors.Is(err, tenant.ErrExpired) {
			detail = "the credentials have expired"
		}
		s.refuse(w, r, rt.call, reject(http.StatusUnauthorized, reasonAuth, 0, "%s", detail), nil)
		return
	case err != nil:
		s.unavailable(w, r, rt.call, err, nil)
		return
	case !id.Allows(rt.Scope):
		s.refuse(w, r, rt.call, reject(http.StatusForbidden, reasonScope, 0, "these credentials do not allow to %s", rt.Scope), nil)
		return
	}
	n, err := s.pin.partitions()
	if err != nil {
		s.unavailable(w, r, rt.call, err, nil)
		return
	}
	t, rej := targetOf(id.Tenant, rt, n)
	if rej != nil {
		s.refuse(w, r, rt.call, rej, nil)
		return
	}
	t = t.of(s.quotas.Tenant(id.Tenant))
	done, err := t.quota.Admit(w.Header(), quota.Requests)
	if err != nil {
		s.refuse(w, r, rt.call, overQuota(err, 0), nil)
		return
	}
	defer done()
	r, stop := tenant.Guard(w, r, s.auth, id, rt.Scope)
	defer stop()
	rt.serve(s, w, r, t)
}

// revoked returns the refusal of a request whose credentials have ended; nil while they are valid.
func revoked(r *http.Request) *rejection {
	if !tenant.Revoked(r.Context()) {
		return nil
	}
	return reject(http.StatusUnauthorized, reasonAuth, 0, "%v", tenant.ErrRevoked)
}

// endEarly makes it possible to answer while the body is still coming. Without it net/http reads on
// before it sends the answer, for as long as the caller keeps the body open. Afterwards the
// connection is of no use.
func endEarly(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	rc := http.NewResponseController(w)
	// Both are refused only by writers that are no connection (tests), and then not needed.
	_ = rc.EnableFullDuplex()
	// The rest of the body is read and dropped for a moment, so that a caller in the middle of a
	// write sees the answer and not a reset connection.
	_ = rc.SetReadDeadline(time.Now().Add(front.RestGrace))
}

func (s *Service) accept(w http.ResponseWriter, c call, status int, answer any) {
	s.metrics.requests.WithLabelValues(string(c), outcomeAccepted).Inc()
	body, err := json.Marshal(answer)
	if err != nil { // numbers and ids only: cannot be
		problem.Write(w, problem.Problem{Status: http.StatusInternalServerError, Detail: err.Error()})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a caller that is gone has the same doubt as one that was cut off
}

// refuse answers what is the caller's fault.
func (s *Service) refuse(w http.ResponseWriter, r *http.Request, c call, rej *rejection, got *ack) {
	if rej.reason == reasonTimeout {
		if ended := revoked(r); ended != nil {
			rej = ended
		}
	}
	p := s.refusal(c, rej, got)
	if rej.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(rej.retry.Seconds())))))
	}
	if rej.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", tenant.Challenge)
	}
	if rej.status == http.StatusUnsupportedMediaType {
		types := typeJSON
		if c == callEvents {
			types = acceptedTypes
		}
		w.Header().Set("Accept-Encoding", "gzip, zstd")
		w.Header().Set("Accept-Post", types)
	}
	answerProblem(w, r, p)
}

// refusal counts what is the caller's fault, and says it.
func (s *Service) refusal(c call, rej *rejection, got *ack) problem.Problem {
	outcome := outcomeRejected
	if rej.status == http.StatusServiceUnavailable {
		outcome = outcomeUnavailable
	}
	s.metrics.requests.WithLabelValues(string(c), outcome).Inc()
	s.metrics.rejected.WithLabelValues(rej.reason).Inc()
	return rej.problem(got)
}

func (r *rejection) problem(got *ack) problem.Problem {
	ext := extensions(r.reason, got)
	if r.line > 0 {
		ext["line"] = r.line
	}
	p := problem.Problem{Status: r.status, Detail: r.Error(), Extensions: ext}
	if r.limit != "" {
		p.Type, ext["limit"], ext["violated-policies"] = quota.ProblemType, r.limit, []string{r.limit}
	}
	return p
}

func answerProblem(w http.ResponseWriter, r *http.Request, p problem.Problem) {
	endEarly(w, r)
	problem.Write(w, p)
}

// unavailable answers what is not the caller's fault.
func (s *Service) unavailable(w http.ResponseWriter, r *http.Request, c call, err error, got *ack) {
	p, retry := s.failure(c, err, got)
	if retry != "" {
		w.Header().Set("Retry-After", retry)
	}
	answerProblem(w, r, p)
}

// failure counts what is not the caller's fault, and says it, and in how many seconds to try again. What was
// acknowledged stays; of what was sent after it some may still arrive, which the text says.
func (s *Service) failure(c call, err error, got *ack) (p problem.Problem, retry string) {
	if errors.Is(err, kerr.MessageTooLarge) {
		// The topic's own limit is below ours. Trying again is of no use, so 503 would be a lie.
		return s.refusal(c, reject(http.StatusRequestEntityTooLarge, reasonTooLarge, 0, "larger than the topic %s accepts", s.topics.Events), got), ""
	}
	s.metrics.requests.WithLabelValues(string(c), outcomeUnavailable).Inc()
	s.metrics.rejected.WithLabelValues(reasonUnavailable).Inc()
	retry = "5"
	if errors.Is(err, errDraining) {
		retry = "1" // elsewhere
	}
	if errors.Is(err, kafka.ErrPartitionCounts) || errors.Is(err, kafka.ErrNoTopic) {
		retry = "60" // a person has to do something first
	}
	detail := err.Error()
	if got != nil {
		detail += "; what comes after the accepted events was not acknowledged and may have been written or not: send it again, with seq numbers a repeat is dropped"
	}
	return problem.Problem{Status: http.StatusServiceUnavailable, Detail: detail, Extensions: extensions(reasonUnavailable, got)}, retry
}

func extensions(reason string, got *ack) map[string]any {
	ext := map[string]any{"reason": reason}
	if got != nil {
		ext["accepted"] = got.Accepted
		ext["partition"] = got.Partition
		ext["firstOffset"] = got.FirstOffset
		ext["lastOffset"] = got.LastOffset
	}
	return ext
}
