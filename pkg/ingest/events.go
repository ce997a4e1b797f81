package ingest

import (
	"errors"
	"io"
	"net/http"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/record"
)

// postEvents is POST /v1/threads/{thread}/runs/{run}/events.
func (s *Service) postEvents(w http.ResponseWriter, r *http.Request, t target) {
	acks, buffer := wantsAcks(r), readBuffer
	if acks {
		buffer = streamBuffer
	}
	if acks || !isShort(r) {
		done, err := t.quota.Admit(nil, quota.Streams)
		if err != nil {
			s.refuse(w, r, callEvents, overQuota(err, 0), nil)
			return
		}
		defer done()
	}
	b, rej := s.openBody(w, r, t, buffer)
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
	events, rej := newEventReader(mediaType(r), b, quota.Smaller(s.cfg.MaxEventBytes, t.limits.MaxEventBytes))
	if rej != nil {
		s.refuse(w, r, callEvents, rej, nil)
		return
	}
	// The body may be silent for minutes while the agent thinks: do not wait for it to say that Kafka is away.
	p := s.newPublisher(r.Context(), t, record.KindEvent, by, b.claim, b.end)
	if acks {
		s.answerAcks(w, r, b, events, p)
		return
	}
	rej = publishAll(r, b, events, p, func(*rejection) bool { return false })
	got, err := p.finish()
	switch {
	case err != nil: // before rej: a read that was ended by the failure is no fault of the caller
		s.unavailable(w, r, callEvents, err, &got)
	case rej != nil && rej.reason == reasonTimeout && s.stopping.Err() != nil:
		s.unavailable(w, r, callEvents, errDraining, &got)
	case rej != nil:
		s.refuse(w, r, callEvents, rej, &got)
	default:
		s.accept(w, callEvents, http.StatusOK, accepted{got, p.warnings})
	}
}

// isShort reports whether a request says that its body is short. It then has no time to be silent (openBody), and counts as no stream.
func isShort(r *http.Request) bool { return r.ContentLength >= 0 && r.ContentLength <= readBuffer }

// publishAll sends events until the body ends (nil), one is refused, the credentials end, or the publisher fails (nil; finish returns
// why). After an event that is refused it goes on if the body allows it and without returns true.
func publishAll(r *http.Request, b *body, events eventReader, p *publisher, without func(*rejection) bool) *rejection {
	_, some := events.(*arrayReader) // [] says that it has no event
	for {
		ev, err := events.next()
		if rej := revoked(r); rej != nil { // much may lie in the buffers of a body that the revocation has ended
			return rej
		}
		if errors.Is(err, io.EOF) {
			if !some {
				return b.noEvent()
			}
			return nil
		}
		some = true
		b.came()
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
		of, err := agui.Admit(ev.value)
		if err != nil {
			b.claim.give(ev.held)
			if rej := malformed(err, ev.line); !without(rej) {
				return rej
			}
			continue
		}
		if rej := admit(p.waiting, p.quota, ev); rej != nil {
			return rej
		}
		p.look(ev, of)
		if !p.send(ev) {
			return nil
		}
	}
}
