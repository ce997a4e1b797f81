package ingest

import (
	"errors"
	"io"
	"net/http"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/eventstream"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/tenant"
)

// postEvents serves POST /v1/threads/{thread}/runs/{run}/events.
func (s *Service) postEvents(c *front.Call, t target) error {
	acks, buffer := wantsAcks(c.R), readBuffer
	if acks {
		buffer = streamBuffer
	}
	if acks || !isShort(c.R) {
		done, err := t.quota.Admit(nil, quota.Streams)
		if err != nil {
			return err
		}
		defer done()
	}
	b, err := s.openBody(c, t, buffer)
	if err != nil {
		return err
	}
	defer b.close()
	by, err := producerOf(c.R.Header)
	if err != nil {
		return err
	}
	form, err := formOf(mediaType(c.R))
	if err != nil {
		return err
	}
	events := b.events(form, quota.Smaller(s.cfg.MaxEventBytes, t.limits.MaxEventBytes))
	defer events.Close()
	// The body may be silent for minutes while the agent thinks. A failure of Kafka therefore ends the read at once
	// (b.end).
	p := s.newPublisher(c.R.Context(), t, record.KindEvent, by, b.end)
	defer func() { _, _ = p.finish() }() // for a panic; otherwise an earlier call has finished p
	if acks {
		return s.answerAcks(c, b, events, p)
	}
	refused := publishAll(c.R, b, events, p, func(*front.Problem) bool { return false })
	got, err := p.finish()
	if err == nil { // else the publisher's failure aborted the read, and refused is not the caller's fault
		err = refused
	}
	if err == nil {
		return accept(c, http.StatusOK, accepted{got, p.unreadable, p.repeats, p.warnings})
	}
	if rej := new(front.Problem); s.stopping.Err() != nil && errors.As(err, &rej) && rej.Reason == reasonTimeout {
		err = errDraining
	}
	return after(err, got)
}

// isShort reports whether Content-Length announces a short body. Between its events, such a body may pause only as long
// as within an event (openBody), and it does not count as a stream.
func isShort(r *http.Request) bool { return r.ContentLength >= 0 && r.ContentLength <= readBuffer }

// publishAll publishes events. It returns nil if the body ends or the publisher fails (finish returns why), and an error
// if it refuses an event or the credentials end. If one event is bad, it calls skip with the refusal and continues if
// skip returns true.
func publishAll(r *http.Request, b *body, events *eventstream.Reader, p *publisher, skip func(*front.Problem) bool) error {
	some := events.Form() == eventstream.Array // the empty array is valid
	var e agui.Decoder
	for {
		ev, err := events.Next()
		if tenant.Revoked(r.Context()) { // the buffers may still contain many events after the revocation
			return tenant.ErrRevoked
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
			rej := b.failed(err, events.Line())
			if bad, ok := errors.AsType[*eventstream.Error](err); !ok || !bad.More || !skip(rej) {
				return rej
			}
			continue
		}
		unreadable, err := e.Admit(ev.Value)
		if err != nil {
			if rej := malformed(err, ev.Line); !skip(rej) {
				return rej
			}
			continue
		}
		if err := admit(p.waiting, p.target.quota, len(ev.Value), ev.Line); err != nil {
			return err
		}
		p.look(ev.Line, &e.Event, unreadable)
		if !p.send(ev, e.Type) {
			return nil
		}
	}
}
