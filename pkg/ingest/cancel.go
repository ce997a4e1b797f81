package ingest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/eventstream"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

const (
	// cancelWait is how long a request to stop a run waits for the run's end. A proxy takes milliseconds for that, and 2 s at most.
	cancelWait = 3 * time.Second
	// cancelBytes is what a request counts of the memory while it waits: what is read of the log for it.
	cancelBytes = 512 << 10
	// maxReasonBytes bounds what a caller says of it.
	maxReasonBytes = 1 << 10
)

// cancelAgain is when the record is written again where the run has not ended: a proxy that has begun the run just now, or has lost its
// connection to Kafka, does not read its partition yet.
var cancelAgain = []time.Duration{250 * time.Millisecond, time.Second}

// cancelled says how a run has ended that was to be stopped.
type cancelled struct {
	ThreadID string `json:"threadId"`
	RunID    string `json:"runId"`
	// Position is that of the request in skein.events, End that of the run's terminal event.
	Position record.Position `json:"position"`
	End      record.Position `json:"end"`
	// Status is how the run ended: it may have come to its own end meanwhile.
	Status record.Status `json:"status"`
	// Synthetic: a proxy wrote the end in the agent's place.
	Synthetic bool `json:"synthetic,omitempty"`
}

// errNotEnded says that a run did not end after a request to stop it.
var errNotEnded = errors.New("the run has not ended")

// postCancel is POST /v1/threads/{thread}/runs/{run}/cancel. It writes the request to the thread's partition, where the process
// reads it that holds the run, whichever that is, and waits for the run's end behind it.
func (s *Service) postCancel(c *front.Call, t target) error {
	value, err := s.readReason(c, t)
	if err != nil {
		return err
	}
	held := s.memory.Claim(t.tenant, 0)
	defer held.Close()
	if err := held.Take(cancelBytes); err != nil {
		return err
	}
	answer, err := s.cancelRun(c.R.Context(), t, value)
	switch {
	case errors.Is(err, errNotEnded):
		return front.Refuse(http.StatusConflict, reasonNotEnded,
			"the run has not ended within %v of the request, which lies at %s: it has ended before, or no proxy holds it and its agent does not read the request",
			s.cancelWait, answer.Position)
	case err != nil:
		return err
	}
	return accept(c, http.StatusOK, answer)
}

// readReason reads the body, which may be empty, and returns the value of the record.
func (s *Service) readReason(c *front.Call, t target) ([]byte, error) {
	if m := mediaType(c.R); m != "" && m != typeJSON {
		return nil, front.Refuse(http.StatusUnsupportedMediaType, reasonMediaType, "cannot read a reason as %.100q: set Content-Type to %s", m, typeJSON)
	}
	b, err := s.openBody(c, t, 1<<10)
	if err != nil {
		return nil, err
	}
	defer b.close()
	b.pending(func() bool { return true })
	const limit = 8 * maxReasonBytes // as JSON, with whatever else there is
	text, err := io.ReadAll(io.LimitReader(b, limit+1))
	if err != nil {
		return nil, b.failed(err, 0)
	}
	var said struct {
		Reason string `json:"reason,omitempty"`
	}
	if len(text) > limit {
		return nil, tooLarge(limit)
	}
	if text = bytes.Trim(text, eventstream.Space); len(text) > 0 {
		if err := json.Unmarshal(text, &said); err != nil {
			return nil, badLine(agui.RuleNotJSON, 0, `want {"reason": "…"}, or no body: %v`, err)
		}
	}
	if len(said.Reason) > maxReasonBytes {
		return nil, tooLarge(maxReasonBytes)
	}
	value, err := json.Marshal(said)
	if err != nil { // a string only: cannot be
		return nil, err
	}
	return value, nil
}

// cancelRun writes the request, again where nothing comes of it, and waits for the run's end. With errNotEnded it returns where the
// request lies.
func (s *Service) cancelRun(ctx context.Context, t target, value []byte) (cancelled, error) {
	request := func() (ack, error) {
		return s.publishOne(ctx, t, record.KindCancel, producer{}, value)
	}
	w := s.ends.wait(t)
	defer s.ends.leave(w)
	got, err := request()
	if err != nil {
		return cancelled{}, err
	}
	s.ends.follow(w, got.FirstOffset)
	begun := time.Now()
	out := cancelled{ThreadID: t.thread, RunID: t.run, Position: record.Position{Partition: got.Partition, Offset: got.FirstOffset}}
	for _, until := range append(cancelAgain[:len(cancelAgain):len(cancelAgain)], s.cancelWait) {
		select {
		case end := <-w.ended:
			out.Status, out.Synthetic, out.End = end.status, end.synthetic, end.at
			return out, end.err
		case <-ctx.Done(): // the caller has left
			return out, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
		case <-time.After(time.Until(begun.Add(min(until, s.cancelWait)))):
		}
		if until >= s.cancelWait {
			break
		}
		if _, err := request(); err != nil {
			return out, err
		}
	}
	return out, errNotEnded
}

// endOf returns the terminal event that a record is; without a status where it is none. Its run is the one that the record or the event names. An
// error says that a newer Skein wrote it: it may be the end.
func endOf(m *kgo.Record) *runEnd {
	if err := kafka.CheckVersion(m); err != nil {
		return &runEnd{err: fmt.Errorf("%w: waiting for the run's end: %w", ErrUnavailable, err)}
	}
	none := &runEnd{}
	h, err := kafka.ParseHeaders(m.Headers)
	if err != nil || h.Kind != record.KindEvent {
		return none
	}
	ev, err := agui.Decode(m.Value)
	if err != nil {
		return none
	}
	end := &runEnd{runID: cmp.Or(h.RunID, ev.RunID), at: record.Position{Partition: m.Partition, Offset: m.Offset}, synthetic: h.Synthetic}
	switch {
	case ev.Type == agui.RunError:
		end.status = record.StatusError
	case ev.Type != agui.RunFinished:
		return none
	default:
		switch ev.OutcomeType() {
		case "interrupt":
			end.status = record.StatusInterrupted
		case "cancelled":
			end.status = record.StatusCancelled
		default:
			end.status = record.StatusFinished
		}
	}
	return end
}
