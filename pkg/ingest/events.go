package ingest

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

// postEvents is POST /v1/threads/{thread}/runs/{run}/events.
func (s *Service) postEvents(w http.ResponseWriter, r *http.Request, t target) {
	acks, buffer := wantsAcks(r), readBuffer
	if acks {
		buffer = streamBuffer
	}
	b, rej := openBody(r, buffer)
	if rej != nil {
		s.refuse(w, r, callEvents, rej, nil)
		return
	}
	defer b.close()
	by, rej := producerOf(r.Header)
	if rej != nil {
		s.refuse(w, r, callEvents, rej, nil)
		return
	}
	events, rej := newEventReader(mediaType(r), b, s.cfg.MaxEventBytes)
	if rej != nil {
		s.refuse(w, r, callEvents, rej, nil)
		return
	}
	rc := http.NewResponseController(w)
	p := s.newPublisher(t, record.KindEvent, by, func() {
		// The body may be silent for minutes while the agent thinks: do not wait for it to say
		// that Kafka is away.
		_ = rc.SetReadDeadline(time.Now())
	})
	if acks {
		s.answerAcks(w, events, p)
		return
	}
	rej = publishAll(events, p, func(*rejection) bool { return false })
	got, err := p.finish()
	switch {
	case err != nil: // before rej: a read that was ended by the failure is no fault of the caller
		s.unavailable(w, r, callEvents, err, &got)
	case rej != nil && rej.reason == reasonTimeout && s.stopping.Err() != nil:
		s.unavailable(w, r, callEvents, errDraining, &got)
	case rej != nil:
		s.refuse(w, r, callEvents, rej, &got)
	default:
		s.accept(w, callEvents, http.StatusOK, got)
	}
}

// publishAll sends events until the body ends (nil), one is refused, or the publisher fails (nil, its
// finish tells). It goes on behind an event that is refused where that can be done and without says so.
func publishAll(events eventReader, p *publisher, without func(*rejection) bool) *rejection {
	for {
		ev, err := events.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			var rej *rejection
			switch {
			case !errors.As(err, &rej):
				return reject(http.StatusInternalServerError, reasonInternal, 0, "%v", err)
			case !rej.more || !without(rej):
				return rej
			}
			continue
		}
		if _, err := agui.Envelope(ev.value); err != nil {
			if rej := malformed(err, ev.line); !without(rej) {
				return rej
			}
			continue
		}
		if !p.send(ev) {
			return nil
		}
	}
}
