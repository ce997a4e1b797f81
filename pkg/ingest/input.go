package ingest

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/record"
)

// putInput is PUT /v1/threads/{thread}/runs/{run}/input.
func (s *Service) putInput(c *front.Call, t target) error {
	b, err := s.openInput(c, t, readBuffer)
	if err != nil {
		return err
	}
	defer b.close()
	by, err := producerOf(c.R.Header)
	if err != nil {
		return err
	}
	ev, in, err := readInput(b, s.maxInput(t))
	if err != nil {
		return err
	}
	p := s.newPublisher(c.R.Context(), t, record.KindInput, by, b.claim, func() {})
	refused := admit(p.waiting, p.quota, ev)
	if refused == nil {
		p.send(ev)
	}
	got, err := p.finish()
	if err = cmp.Or(refused, err); err != nil {
		return err
	}
	return accept(c, http.StatusOK, struct {
		Partition int32     `json:"partition"`
		Offset    int64     `json:"offset"`
		Warnings  []warning `json:"warnings,omitempty"`
	}{got.Partition, got.FirstOffset, t.compareIDs(0, "the input", in.ThreadID, in.RunID)})
}

// readInput reads and checks one RunAgentInput. White space round it goes, all else stays.
func readInput(b *body, limit int) (event, *agui.RunAgentInput, error) {
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
		if err := all.add(part); err != nil {
			return event{}, nil, err
		}
		_, _ = b.Discard(len(part))
	}
	value, held := all.hand()
	if value = bytes.Trim(value, space); len(value) > limit {
		return event{}, nil, tooLarge(0, limit)
	}
	decoding := int64(len(value)) // older forms are written anew
	if err := b.claim.Take(decoding); err != nil {
		return event{}, nil, err
	}
	defer b.claim.Give(decoding)
	in, err := decodeInput(value)
	if err != nil {
		return event{}, nil, err
	}
	return event{value: value, seq: -1, held: held}, in, nil
}

// decodeInput checks an input.
func decodeInput(value []byte) (*agui.RunAgentInput, error) {
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
func (s *Service) openInput(c *front.Call, t target, buffer int) (*body, error) {
	if m := mediaType(c.R); m != "" && m != typeJSON {
		return nil, front.Refuse(http.StatusUnsupportedMediaType, reasonMediaType, "cannot read an input as %.100q: set Content-Type to %s", m, typeJSON)
	}
	b, err := s.openBody(c, t, buffer)
	if err == nil {
		b.begun(true)
	}
	return b, err
}

// firstInput is what an input takes with its first byte, and the buffer before it.
const firstInput = 4 << 10

// takeInput reads an input without checking it. It counts the memory that it takes in held, as bytes come: a caller that sends slowly
// holds what it has sent, and no more than twice that.
func (s *Service) takeInput(c *front.Call, t target, held *front.Claim) (value []byte, err error) {
	b, err := s.openInput(c, t, firstInput)
	if err != nil {
		return nil, err
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
			return nil, b.failed(err, 0)
		}
		if len(value) == cap(value) {
			if len(value) > most {
				return nil, tooLarge(0, limit)
			}
			size := min(max(2*cap(value), firstInput), most+1)
			if err := held.Begin(int64(size - cap(value))); err != nil {
				return nil, err
			}
			value = append(make([]byte, 0, size), value...)
		}
		n, _ := b.Read(value[len(value):cap(value)]) // what is there: no error
		value = value[:len(value)+n]
	}
	value = bytes.Trim(value, space)
	if len(value) > limit {
		return nil, tooLarge(0, limit)
	}
	return value, nil
}
