package ingest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/eventstream"
)

// streamBuffer is the read buffer of a stream, in bytes. It is small because thousands of streams may be open for
// hours.
const streamBuffer = 4 << 10

// mostRefusals is how many refusals may wait for a caller that does not read its response. Beyond it, ingest stops
// reading the caller's events.
const mostRefusals = 64

// errNotReading means that a write of the response failed, because the caller does not read it.
var errNotReading = errors.New("the response cannot be written: the caller does not read it")

// ackLine is one line of the response.
//
// A caller that accepts NDJSON receives response lines while it sends. An agent can thus use one request for its whole
// run and discard acknowledged events. Each line has one member:
//
//	{"acknowledged": {"line": 12, "accepted": 11, "partition": 3, "firstOffset": 40, "lastOffset": 50}}
//	{"refused": {"line": 7, "reason": "not-json", "detail": "…"}}
//	{"done": {"accepted": 11, "refused": 1, "partition": 3, "firstOffset": 40, "lastOffset": 50}}
//	{"failed": {…, "status": 503, "reason": "unavailable", "detail": "…", "accepted": 11, …}}
//
// The topic has all events up to and including the one that begins on the acknowledged line, except refused ones, which
// earlier lines report. If several events begin on one line, as in an array, the member accepted gives the number
// acknowledged. After Config.Heartbeat without a line, the last acknowledgement is repeated, so that reverse proxies keep
// the connection. The response ends with done or failed; a response with neither was cut off.
type ackLine struct {
	Acknowledged *acknowledged  `json:"acknowledged,omitempty"`
	Refused      *refusal       `json:"refused,omitempty"`
	Done         *done          `json:"done,omitempty"`
	Failed       *front.Problem `json:"failed,omitempty"`
}

type acknowledged struct {
	Line int64 `json:"line"`
	ack
}

type refusal struct {
	Line   int64  `json:"line"`
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

type done struct {
	accepted
	Refused int64 `json:"refused"`
}

// wantsAcks reports whether the caller accepts NDJSON, and so wants acknowledgements while it sends.
func wantsAcks(r *http.Request) bool {
	for _, header := range r.Header.Values("Accept") {
		for one := range strings.SplitSeq(header, ",") {
			t, params, err := mime.ParseMediaType(one)
			if q, has := params["q"]; err == nil && t == typeNDJSON && (!has || strings.Trim(q, "0.") != "") {
				return true
			}
		}
	}
	return false
}

// ackStream writes the response in its own goroutine, so that a caller that reads slowly can still send, until
// mostRefusals are waiting.
type ackStream struct {
	w  http.ResponseWriter
	rc *http.ResponseController
	p  *publisher
	// pause is the longest time without a line.
	pause time.Duration
	beat  *time.Timer
	over  sync.WaitGroup

	// The following fields are guarded by p.mu; p.moved signals changes.
	refusals []refusal
	refused  int64
	due      bool // repeat the last acknowledgement
	closing  bool
	err      error
}

// startAcks begins the response. Its status is 200, even if a later event fails.
//
// An HTTP/1 connection is closed after the response, which may end before the body. If it were reused, net/http would read the rest
// of the body as the next request, or panic if both it and the handler read that rest.
func (s *Service) startAcks(w http.ResponseWriter, r *http.Request, p *publisher) *ackStream {
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	a := &ackStream{w: w, rc: http.NewResponseController(w), p: p, pause: s.cfg.Heartbeat}
	_ = a.rc.EnableFullDuplex() // fails only for the response writers of tests
	w.Header().Set("Content-Type", typeNDJSON)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	_ = a.rc.Flush() // the first line reports an error
	a.beat = time.AfterFunc(a.pause, a.wake)
	a.over.Go(a.run)
	return a
}

func (a *ackStream) wake() {
	a.p.mu.Lock()
	defer a.p.mu.Unlock()
	a.due = true
	a.p.moved.Broadcast()
}

// refuse queues a refusal. It blocks while mostRefusals are waiting, and returns false if the request has failed.
func (a *ackStream) refuse(rej *front.Problem) bool {
	a.p.mu.Lock()
	defer a.p.mu.Unlock()
	for len(a.refusals) >= mostRefusals && a.p.err == nil {
		a.p.moved.Wait()
	}
	a.refused++
	a.refusals = append(a.refusals, refusal{Line: rej.Line, Reason: rej.Reason, Detail: rej.Detail})
	a.p.moved.Broadcast()
	return a.p.err == nil
}

// run writes lines until a write fails, or the stream is closed and all lines are written.
func (a *ackStream) run() {
	var told ack
	a.p.mu.Lock()
	defer a.p.mu.Unlock()
	for {
		for len(a.refusals) == 0 && a.p.acked.Accepted == told.Accepted && !a.due && !a.closing {
			a.p.moved.Wait()
		}
		refusals, at, due, closing := a.refusals, acknowledged{a.p.ackedLine, a.p.acked}, a.due, a.closing
		a.refusals, a.due = nil, false
		if len(refusals) >= mostRefusals {
			a.p.moved.Broadcast()
		}
		a.p.mu.Unlock()
		var lines []ackLine
		for i := range refusals {
			lines = append(lines, ackLine{Refused: &refusals[i]})
		}
		if at.Accepted != told.Accepted || due {
			lines = append(lines, ackLine{Acknowledged: &at})
		}
		err := a.write(lines...)
		if err == nil {
			a.beat.Reset(a.pause)
		} else {
			a.p.abort(err)
		}
		a.p.mu.Lock()
		told = at.ack
		if a.err = err; err != nil || closing {
			return
		}
	}
}

// write writes lines and flushes them.
func (a *ackStream) write(lines ...ackLine) error {
	if len(lines) == 0 {
		return nil
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	for _, l := range lines {
		if err := enc.Encode(l); err != nil { // impossible: lines contain only texts and numbers
			return fmt.Errorf("writing the answer: %w", err)
		}
	}
	if _, err := a.w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("%w: %w", errNotReading, err)
	}
	if err := a.rc.Flush(); err != nil {
		return fmt.Errorf("%w: %w", errNotReading, err)
	}
	return nil
}

// end writes the remaining lines and the last one. Call it when no more acknowledgements follow.
func (a *ackStream) end(last ackLine) {
	a.close()
	if a.err == nil {
		_ = a.write(last) // without this line, the caller knows that the response was cut off
	}
}

// close writes the remaining lines. Further calls do nothing.
func (a *ackStream) close() {
	a.p.mu.Lock()
	a.closing = true
	a.p.moved.Broadcast()
	a.p.mu.Unlock()
	a.over.Wait()
	a.beat.Stop()
}

// answerAcks publishes events and writes the response while the events arrive. An invalid event is refused without
// ending the request. The response already contains the returned error.
func (s *Service) answerAcks(c *front.Call, b *body, events *eventstream.Reader, p *publisher) error {
	a := s.startAcks(c.W, c.R, p)
	defer a.close()
	refused := publishAll(c.R, b, events, p, func(rej *front.Problem) bool {
		s.metrics.rejected.WithLabelValues(rej.Reason).Inc()
		return a.refuse(rej)
	})
	got, err := p.finish()
	if err = cmp.Or(err, refused); err != nil {
		// net/http reads and drops the rest of the body for at most RestGrace.
		defer func() { _ = a.rc.SetReadDeadline(time.Now().Add(front.RestGrace)) }()
	}
	switch {
	case errors.Is(err, errNotReading):
		a.end(ackLine{}) // a last line could not be written either
		return front.Refuse(http.StatusRequestTimeout, reasonTimeout, "%v", err)
	case err != nil:
		failed := after(err, got)
		a.end(ackLine{Failed: failed})
		return failed
	}
	a.end(ackLine{Done: &done{accepted: accepted{got, a.p.unreadable, a.p.repeats, a.p.warnings}, Refused: a.refused}})
	if a.refused > 0 {
		return errPartly
	}
	return nil
}
