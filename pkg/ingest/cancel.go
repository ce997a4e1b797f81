package ingest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/tail"
	"github.com/skeinhq/skein/pkg/tenant"
)

const (
	// cancelWait is how long a request to stop a run waits for the run's end. A proxy ends a run within milliseconds, at
	// most 2 s.
	cancelWait = 3 * time.Second
	// cancelBytes is the memory that a waiting request acquires for the part of the log that it reads.
	cancelBytes = 512 << 10
	// maxReasonBytes is the limit of the caller's reason, in bytes.
	maxReasonBytes = 1 << 10
)

// cancelLook is how often a waiting request looks whether query has said that the run had ended. Any proxy that holds the run would
// have ended it by the first time.
const cancelLook = 250 * time.Millisecond

// cancelAgain lists the times, multiples of cancelLook, after which the cancel record is written again if the run has not ended. A proxy
// misses the record if it has only just begun the run or has lost its connection to Kafka.
var cancelAgain = []time.Duration{cancelLook, 4 * cancelLook}

// cancelled is the response to a cancel request: how the run has ended.
type cancelled struct {
	ThreadID string `json:"threadId"`
	RunID    string `json:"runId"`
	// Position is the position of the cancel record in skein.events; End is that of the run's terminal event.
	Position record.Position `json:"position"`
	End      record.Position `json:"end"`
	// Status is how the run ended. The run may have ended by itself meanwhile.
	Status record.Status `json:"status"`
	// Synthetic reports whether a proxy wrote the end in place of the agent.
	Synthetic bool `json:"synthetic,omitempty"`
}

// errNotEnded means that a run did not end after a request to stop it.
var errNotEnded = errors.New("the run has not ended")

// postCancel serves POST /v1/threads/{thread}/runs/{run}/cancel and POST /v1/threads/{thread}/cancel. It writes a cancel record to the
// thread's partition, where the process that serves the run reads it. Then it waits for an end of the run after that record; without a run,
// for the first end of any.
func (s *Service) postCancel(c *front.Call, t target) error {
	asked, err := s.readReason(c, t)
	if err != nil {
		return err
	}
	held := s.memory.Claim(t.tenant, 0)
	defer held.Close()
	if err := held.Take(cancelBytes); err != nil {
		return err
	}
	ctx, done := context.WithCancel(c.R.Context())
	defer done()
	known := make(chan client.KnownRun, 1)
	if s.asking != nil {
		go func() { // while the request is written, so that query need not wait for the index to have it
			run, err := s.lastRun(ctx, c.R, t)
			if err != nil && !client.IsNotFound(err) && !isDenied(err) && ctx.Err() == nil {
				s.logger.Warn("asking query how a run has ended", "error", err)
			}
			known <- run
		}()
	}
	answer, err := s.cancelRun(ctx, t, asked, known)
	switch {
	case errors.Is(err, errNotEnded) && t.run == "" && answer.Status != "":
		return front.Refuse(http.StatusConflict, reasonUsed, "no run of the thread is open")
	case errors.Is(err, errNotEnded) && answer.Status != "":
		return front.Refuse(http.StatusConflict, reasonUsed, "the run had ended before the request: %s", answer.Status)
	case errors.Is(err, errNotEnded):
		return front.Refuse(http.StatusConflict, reasonNotEnded,
			"the run has not ended within %v of the request, which lies at %s: it has ended before, or no proxy holds it and its agent does not read the request",
			s.cancelWait, answer.Position)
	case err != nil:
		return err
	}
	return accept(c, http.StatusOK, answer)
}

// askingAs returns the client of query with the credentials of a request's caller.
func (s *Service) askingAs(r *http.Request) *client.Client {
	key, _ := tenant.Bearer(r) // none, if requests need none
	return s.asking.WithKey(key)
}

// isDenied reports whether query has refused the caller, as for a key without the scope read.
func isDenied(err error) bool {
	denied := new(client.Error)
	return errors.As(err, &denied) && (denied.Status == http.StatusUnauthorized || denied.Status == http.StatusForbidden)
}

// lastRun asks query, as the caller of a request, for the last run with the target's id. Without an id, it returns a run that has ended if
// no run of the thread is open, and else none.
func (s *Service) lastRun(ctx context.Context, r *http.Request, t target) (client.KnownRun, error) {
	if t.run != "" {
		return s.askingAs(r).LastRun(ctx, t.thread, t.run)
	}
	open, err := s.askingAs(r).Running(ctx, t.thread)
	if err == nil && len(open) == 0 || client.IsNotFound(err) {
		return client.KnownRun{Status: string(record.StatusFinished)}, nil
	}
	return client.KnownRun{}, err
}

// stopRecord is the value of a cancel record. Without the header run-id, it is for all runs of the thread that began before an offset: that
// of the record itself, or Before, which a repeated record has.
type stopRecord struct {
	Reason string `json:"reason,omitempty"`
	Before *int64 `json:"before,omitempty"`
}

// readReason reads the request's body, which may be empty.
func (s *Service) readReason(c *front.Call, t target) (asked stop, err error) {
	b, err := s.openJSON(c, t, "a reason")
	if err != nil {
		return stop{}, err
	}
	defer b.close()
	text, err := readJSON(b, 8*maxReasonBytes, b.claim.Take) // allows for JSON escapes and other members
	if err != nil {
		return stop{}, err
	}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &asked); err != nil {
			return stop{}, badLine(agui.RuleNotJSON, 0, `want {"reason": "…"}, or no body: %v`, err)
		}
	}
	if len(asked.Reason) > maxReasonBytes {
		return stop{}, tooLarge(maxReasonBytes)
	}
	return asked, nil
}

// cancelRun writes the cancel record and waits for the run's end, or that of any run if the target has none. It repeats the record at the
// times of cancelAgain, unless known has the run by then and the run had ended before the record. If it returns errNotEnded, the result
// contains the record's position and, if known, how the run had ended.
func (s *Service) cancelRun(ctx context.Context, t target, asked stop, known <-chan client.KnownRun) (cancelled, error) {
	value := stopRecord{Reason: asked.Reason}
	request := func() (ack, error) {
		return s.publishOne(ctx, t, record.KindCancel, producer{}, encoded(value))
	}
	// Follow from the log's end, before writing the request: a reader from an older offset may first wait for a slot to catch up.
	follow, err := s.log.Follow(ctx, t.key, t.partition, tail.End)
	if err != nil {
		return cancelled{}, s.kafkaFailed(t, "the run cannot be followed", err)
	}
	defer follow.Close()
	got, err := request()
	if err != nil {
		return cancelled{}, err
	}
	if t.run == "" {
		value.Before = &got.FirstOffset
	}
	begun := time.Now()
	out := cancelled{ThreadID: t.thread, RunID: t.run, Position: record.Position{Partition: got.Partition, Offset: got.FirstOffset}}
	for until := cancelLook; ; until += cancelLook {
		wait, stop := context.WithDeadline(ctx, begun.Add(min(until, s.cancelWait)))
		end, err := s.nextEnd(wait, follow, t.run, got.FirstOffset)
		late := wait.Err() != nil
		stop()
		switch {
		case err == nil:
			out.RunID, out.Status, out.Synthetic, out.End = end.runID, end.status, end.synthetic, end.at
			return out, nil
		case ctx.Err() != nil: // the caller has left
			return out, hide("the run's end cannot be read", err)
		case !late:
			return out, s.kafkaFailed(t, "the run's end cannot be read", err)
		case until >= s.cancelWait:
			return out, errNotEnded
		}
		select {
		case run := <-known:
			if run.Ended() && run.Raw.Next <= got.FirstOffset {
				out.Status = record.Status(run.Status)
				return out, errNotEnded
			}
		default:
		}
		if slices.Contains(cancelAgain, until) {
			if _, err := request(); err != nil {
				return out, err
			}
		}
	}
}

// nextEnd reads until it finds an end of the run (any, if run is empty) at an offset above the argument after, and returns this end.
func (s *Service) nextEnd(ctx context.Context, follow *tail.Reader, run string, after int64) (runEnd, error) {
	for {
		batch, err := follow.Next(ctx)
		if err != nil {
			return runEnd{}, err
		}
		for _, m := range batch.Records {
			if m.Offset <= after || s.cfg.Kafka.IngestKeys.Refuses(m) {
				continue
			}
			end, err := endOf(m)
			if err != nil || end.status != "" && (end.runID == run || run == "") {
				return end, err
			}
		}
	}
}

// runEnd is a terminal event of a run.
type runEnd struct {
	runID     string
	at        record.Position
	status    record.Status
	synthetic bool
}

// concernsStops reports whether a record may request a stop, claim a thread or end a run, or was written by a newer Skein. The rings of
// package tail keep only such records, so that other events, large or many, do not displace them.
func concernsStops(m *kgo.Record) bool {
	if kafka.CheckVersion(m) != nil {
		return true
	}
	h, err := record.ParseHeaders(m.Headers)
	return err == nil && (h.Kind == record.KindCancel || h.Kind == record.KindClaim ||
		h.Kind == record.KindEvent && (bytes.Contains(m.Value, []byte(agui.RunFinished)) || bytes.Contains(m.Value, []byte(agui.RunError))))
}

// endOf decodes a record as a terminal event. The status is "" if the record is none. The run is the one that the headers name, else the
// event. An error means that a newer Skein wrote the record, which may be the end.
func endOf(m *kgo.Record) (runEnd, error) {
	if err := kafka.CheckVersion(m); err != nil {
		return runEnd{}, err
	}
	h, bad := record.ParseHeaders(m.Headers)
	if bad != nil || h.Kind != record.KindEvent {
		return runEnd{}, nil //nolint:nilerr // bad data ends no run
	}
	ev, bad := fold.Decode(m.Value)
	if ev == nil {
		return runEnd{}, nil
	}
	end := runEnd{runID: cmp.Or(h.RunID, ev.RunID), at: record.Position{Partition: m.Partition, Offset: m.Offset},
		synthetic: h.Synthetic || bad != nil}
	switch {
	case ev.Type == agui.RunError:
		end.status = record.StatusError
	case ev.Type != agui.RunFinished:
	case ev.OutcomeType() == "interrupt":
		end.status = record.StatusInterrupted
	case ev.OutcomeType() == "cancelled":
		end.status = record.StatusCancelled
	default:
		end.status = record.StatusFinished
	}
	return end, nil
}

// isRepeat reports whether a record was for proxies of an earlier time: it was copied from another topic set, or retried as a dead letter.
func isRepeat(m *kgo.Record) bool {
	return slices.ContainsFunc(m.Headers, func(h kgo.RecordHeader) bool {
		return h.Key == record.HeaderCopiedFrom || h.Key == record.HeaderRetryOf
	})
}

// heed reads the thread of a proxied stream until ctx ends and cancels the runs that cancel records name. It ignores
// cancel records from before its start, which concern no run of this process. It misses a record that is written while
// it cannot read from Kafka; cancelAgain repeats the record. After a record of a newer version, heed reads no more of
// the thread, and the partition counts as stopped for as long as the process runs.
func (s *Service) heed(ctx context.Context, t target) {
	for ctx.Err() == nil {
		err := s.heedOnce(ctx, t)
		switch {
		case ctx.Err() != nil || errors.Is(err, tail.ErrClosed):
			return
		case errors.Is(err, record.ErrUnknownVersion):
			if s.metrics.stops.Add(t.partition, err) {
				s.logger.Error("a newer version wrote to a thread; its runs cannot be stopped before this process is updated",
					"thread_id", t.thread, "topic", s.topics.Events, "partition", t.partition, "error", err)
			}
			return
		}
		s.logger.Warn("reading requests to stop runs", "thread_id", t.thread, "topic", s.topics.Events, "partition", t.partition, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// heedOnce reads cancel records until an error occurs.
func (s *Service) heedOnce(ctx context.Context, t target) error {
	follow, err := s.log.Follow(ctx, t.key, t.partition, tail.End)
	if err != nil {
		return err
	}
	defer follow.Close()
	for {
		batch, err := follow.Next(ctx)
		if err != nil {
			return err
		}
		for _, m := range batch.Records {
			if s.cfg.Kafka.IngestKeys.Refuses(m) {
				continue
			}
			if err := kafka.CheckVersion(m); err != nil {
				return err
			}
			// The compactor makes an invalid cancel record a dead letter.
			h, err := record.ParseHeaders(m.Headers)
			if err != nil || h.Kind != record.KindCancel || isRepeat(m) {
				continue
			}
			var asked stopRecord
			if json.Unmarshal(m.Value, &asked) != nil || len(asked.Reason) > maxReasonBytes {
				asked.Reason = "" // a request without a reason of this form has none
			}
			if asked.Before == nil {
				asked.Before = &m.Offset
			}
			var stopped bool
			if h.RunID != "" {
				stopped = s.runs.Cancel(string(m.Key), h.RunID, asked.Reason)
			} else {
				stopped = s.runs.CancelThread(string(m.Key), *asked.Before, asked.Reason)
			}
			if stopped {
				s.logger.Info("a run is stopped as it was asked for", "run_id", h.RunID, "topic", m.Topic, "partition", m.Partition, "offset", m.Offset)
			}
		}
	}
}
