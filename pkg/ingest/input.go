package ingest

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/record"
)

// putInput is PUT /v1/threads/{thread}/runs/{run}/input.
func (s *Service) putInput(w http.ResponseWriter, r *http.Request, t target) {
	b, rej := s.openInput(w, r, t, readBuffer)
	if rej != nil {
		s.refuse(w, r, callInput, rej, nil)
		return
	}
	defer b.close()
	by, rej := producerOf(r.Header)
	if rej != nil {
		s.refuse(w, r, callInput, rej, nil)
		return
	}
	ev, in, rej := readInput(b, s.maxInput(t))
	p := s.newPublisher(r.Context(), t, record.KindInput, by, b.claim, func() {})
	if rej == nil {
		rej = admit(p.waiting, p.quota, ev)
	}
	if rej != nil {
		_, _ = p.finish() // nothing was sent
		s.refuse(w, r, callInput, rej, nil)
		return
	}
	p.send(ev)
	got, err := p.finish()
	if err != nil {
		s.unavailable(w, r, callInput, err, nil)
		return
	}
	s.accept(w, callInput, http.StatusOK, struct {
		Partition int32     `json:"partition"`
		Offset    int64     `json:"offset"`
		Warnings  []warning `json:"warnings,omitempty"`
	}{got.Partition, got.FirstOffset, t.compareIDs(0, "the input", in.ThreadID, in.RunID)})
}

// readInput reads and checks one RunAgentInput. White space round it goes, all else stays.
func readInput(b *body, limit int) (event, *agui.RunAgentInput, *rejection) {
	b.skipMark()
	all := grown{claim: b.claim}
	for {
		_, err := b.Peek(1)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return event{}, nil, b.failed(err, 0)
		}
		part, _ := b.Peek(b.Buffered()) // what is there: no error
		if len(all.b)+len(part) > limit+lineSlack {
			return event{}, nil, tooLarge(0, limit)
		}
		if rej := all.add(part); rej != nil {
			return event{}, nil, rej
		}
		_, _ = b.Discard(len(part))
	}
	value, held := all.hand()
	if value = bytes.Trim(value, space); len(value) > limit {
		return event{}, nil, tooLarge(0, limit)
	}
	decoding := len(value) // older forms are written anew
	if rej := b.claim.take(decoding); rej != nil {
		return event{}, nil, rej
	}
	defer b.claim.give(decoding)
	in, rej := decodeInput(value)
	if rej != nil {
		return event{}, nil, rej
	}
	return event{value: value, seq: -1, held: held}, in, nil
}

// decodeInput checks an input.
func decodeInput(value []byte) (*agui.RunAgentInput, *rejection) {
	if err := agui.CheckDepth(value, agui.MaxInputDepth); err != nil {
		return nil, malformed(err, 0)
	}
	if err := agui.CheckMembers(value); err != nil {
		return nil, malformed(err, 0)
	}
	in, err := agui.DecodeInput(value, "")
	if err != nil {
		return nil, malformed(err, 0)
	}
	return in, nil
}

// maxInput is the limit of a tenant's input.
func (s *Service) maxInput(t target) int {
	return quota.Smaller(s.cfg.MaxEventBytes, t.limits.MaxInputBytes)
}

// openInput opens a body that is an input, with a buffer of that size.
func (s *Service) openInput(w http.ResponseWriter, r *http.Request, t target, buffer int) (*body, *rejection) {
	if m := mediaType(r); m != "" && m != typeJSON {
		return nil, reject(http.StatusUnsupportedMediaType, reasonMediaType, 0, "cannot read an input as %.100q: set Content-Type to %s", m, typeJSON)
	}
	b, rej := s.openBody(w, r, t, buffer)
	if rej == nil {
		b.begun(true)
	}
	return b, rej
}

// firstInput is what an input takes with its first byte, and the buffer before it.
const firstInput = 4 << 10

// takeInput reads an input without checking it. It counts the memory that it takes, as bytes come: a caller that sends slowly
// holds what it has sent, and no more than twice that. held is what the caller releases, in any case.
func (s *Service) takeInput(w http.ResponseWriter, r *http.Request, t target) (value []byte, held int, rej *rejection) {
	b, rej := s.openInput(w, r, t, firstInput)
	if rej != nil {
		return nil, 0, rej
	}
	defer b.close()
	b.skipMark()
	limit := s.maxInput(t)
	most := limit + lineSlack
	for {
		_, err := b.Peek(1)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, held, b.failed(err, 0)
		}
		if len(value) == cap(value) {
			if len(value) > most {
				return nil, held, tooLarge(0, limit)
			}
			size := min(max(2*cap(value), firstInput), most+1)
			if rej := s.memory.begin(t.tenant, size-held); rej != nil {
				return nil, held, rej
			}
			value = append(make([]byte, 0, size), value...)
			held = size
		}
		n, _ := b.Read(value[len(value):cap(value)]) // what is there: no error
		value = value[:len(value)+n]
	}
	value = bytes.Trim(value, space)
	if len(value) > limit {
		return nil, held, tooLarge(0, limit)
	}
	return value, held, nil
}
