package ingest

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/eventstream"
	"github.com/skeinhq/skein/pkg/kafka"
)

// ErrUnavailable means that the stage is not ready: Kafka does not answer, or the partition counts are unknown or have
// changed. The wrapping text names the cause.
var ErrUnavailable = errors.New("unavailable")

// The reasons of refusals, besides the rules of agui.MalformedError.
const (
	reasonTooLarge    = eventstream.ReasonTooLarge
	reasonCut         = "cut"
	reasonEncoding    = "bad-encoding"
	reasonTimeout     = "timeout"
	reasonUnavailable = "unavailable"
	reasonMediaType   = "media-type"
	reasonHeader      = "invalid-header"
	reasonInternal    = "internal"
	reasonNotEnded    = "not-ended"
	reasonAgent       = "no-agent"
	reasonHeld        = "run-under-way"
	reasonUsed        = "run-ended"
	reasonBusy        = "thread-busy"
	reasonQueue       = "queue-full"
	reasonRatio       = "inflates-too-much"
	reasonNoEvent     = "no-event"
)

// reasons returns all reasons, for the metrics.
func reasons() []string {
	return []string{
		agui.RuleNotJSON, agui.RuleTooDeep, agui.RuleNotObject, agui.RuleNoType, agui.RuleSchema,
		reasonTooLarge, reasonCut, reasonEncoding, reasonTimeout,
		eventstream.ReasonDone, eventstream.ReasonNoArray, eventstream.ReasonSeq, eventstream.ReasonSeqOrder,
		reasonUnavailable, reasonMediaType, front.ReasonID, reasonHeader, front.ReasonAuth, front.ReasonScope, reasonInternal, reasonNotEnded,
		reasonAgent, reasonHeld, reasonUsed, reasonBusy, reasonQueue,
		agui.RuleTooMany, agui.RuleTime, reasonRatio, reasonNoEvent, front.ReasonMemory, front.ReasonQuota,
	}
}

// retryAfter is the Retry-After of a 503 whose cause may soon be over.
const retryAfter = 5 * time.Second

// problemOf converts an error into a problem. Errors that are not the caller's fault become 503.
func problemOf(err error) *front.Problem {
	if p := front.ProblemOf(err); p != nil {
		return p
	}
	if errors.Is(err, kerr.MessageTooLarge) { // the topic's limit is below MaxEventBytes, so a retry would fail again
		return front.Refuse(http.StatusRequestEntityTooLarge, reasonTooLarge, "larger than the topic of events accepts")
	}
	p := front.Refuse(http.StatusServiceUnavailable, reasonUnavailable, "%v", err)
	switch {
	case errors.Is(err, errDraining):
		p.Retry = time.Second // another process answers
	case errors.Is(err, kafka.ErrPartitionCounts), errors.Is(err, kafka.ErrNoTopic):
		p.Retry = time.Minute // an operator must act first
	default:
		p.Retry = retryAfter
	}
	return p
}

// hide returns an error of Kafka with what the caller gets in its place. The error itself names brokers, files and addresses.
func hide(said string, err error) error {
	p := problemOf(err)
	if p.Reason == reasonUnavailable {
		p.Detail = said
	}
	return fmt.Errorf("%w: %w: %w", ErrUnavailable, p, err)
}

// kafkaFailed logs why Kafka fails a request, as nothing else does, and hides it.
func (s *Service) kafkaFailed(t target, said string, err error) error {
	s.logger.Error("request failed", "tenant", t.tenant, "thread_id", t.thread, "run_id", t.run, "error", err)
	return hide(said, err)
}

// after returns the problem of an error that ended a request after some events were accepted. These remain accepted.
// Kafka may still write some of the later events.
func after(err error, got ack) *front.Problem {
	p := *problemOf(err)
	if p.Reason == reasonUnavailable {
		p.Detail += "; what comes after the accepted events was not acknowledged and may have been written or not: send it again, with seq numbers a repeat is dropped"
	}
	p.Members = map[string]any{"accepted": got.Accepted, "partition": got.Partition, "firstOffset": got.FirstOffset,
		"lastOffset": got.LastOffset}
	return &p
}

// errPartly is the outcome of a stream that was read to its end, with some events refused.
var errPartly = &front.Problem{Status: http.StatusOK}

// badLine returns a refusal (400) that names a line of the body.
func badLine(reason string, line int64, format string, args ...any) *front.Problem {
	p := front.Refuse(http.StatusBadRequest, reason, format, args...)
	p.Line = line
	return p
}

func tooLarge(limit int) *front.Problem {
	return front.Refuse(http.StatusRequestEntityTooLarge, reasonTooLarge, "larger than the limit of %d bytes", limit)
}

// malformed converts an error of package agui into a refusal.
func malformed(err error, line int64) *front.Problem {
	var m *agui.MalformedError
	if errors.As(err, &m) {
		return badLine(m.Rule, line, "%s", m.Detail)
	}
	return badLine(agui.RuleNotJSON, line, "%v", err)
}
