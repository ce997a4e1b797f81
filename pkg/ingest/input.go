package ingest

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

// putInput is PUT /v1/threads/{thread}/runs/{run}/input.
func (s *Service) putInput(w http.ResponseWriter, r *http.Request, t target) {
	b, rej := openInput(r, readBuffer)
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
	value, rej := readInput(b, s.cfg.MaxEventBytes)
	if rej != nil {
		s.refuse(w, r, callInput, rej, nil)
		return
	}
	p := s.newPublisher(t, record.KindInput, by, func() {})
	p.send(event{value: value, seq: -1})
	got, err := p.finish()
	if err != nil {
		s.unavailable(w, r, callInput, err, nil)
		return
	}
	s.accept(w, callInput, http.StatusOK, struct {
		Partition int32 `json:"partition"`
		Offset    int64 `json:"offset"`
	}{got.Partition, got.FirstOffset})
}

// readInput reads and checks one RunAgentInput. White space round it goes, all else stays.
func readInput(b *body, limit int) ([]byte, *rejection) {
	b.skipMark()
	value, err := io.ReadAll(io.LimitReader(b, int64(limit)+lineSlack+1))
	if err != nil {
		return nil, b.failed(err, 0)
	}
	value = bytes.Trim(value, space)
	if len(value) > limit {
		return nil, tooLarge(0, limit)
	}
	if _, err := agui.DecodeInput(value, ""); err != nil {
		return nil, malformed(err, 0)
	}
	return value, nil
}

// openInput opens a body that is an input, with a buffer of that size.
func openInput(r *http.Request, buffer int) (*body, *rejection) {
	if m := mediaType(r); m != "" && m != typeJSON {
		return nil, reject(http.StatusUnsupportedMediaType, reasonMediaType, 0, "cannot take an input as %.100q: set Content-Type to %s", m, typeJSON)
	}
	return openBody(r, buffer)
}

// firstInput is what an input takes with its first byte, and the buffer before it.
const firstInput = 4 << 10

// takeInput reads an input without checking it. It counts the memory that it takes, as bytes come: a caller that sends slowly
// holds what it has sent, and no more than twice that. held is what the caller releases, in any case.
func (s *Service) takeInput(r *http.Request) (value []byte, held int, rej *rejection) {
	b, rej := openInput(r, firstInput)
	if rej != nil {
		return nil, 0, rej
	}
	defer b.close()
	b.skipMark()
	most := s.cfg.MaxEventBytes + lineSlack
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
				return nil, held, tooLarge(0, s.cfg.MaxEventBytes)
			}
			size := min(max(2*cap(value), firstInput), most+1)
			if !s.inputs.acquire(size - held) {
				return nil, held, reject(http.StatusServiceUnavailable, reasonUnavailable, 0, "%v", errNoRoom)
			}
			value = append(make([]byte, 0, size), value...)
			held = size
		}
		n, _ := b.Read(value[len(value):cap(value)]) // what is there: no error
		value = value[:len(value)+n]
	}
	value = bytes.Trim(value, space)
	if len(value) > s.cfg.MaxEventBytes {
		return nil, held, tooLarge(0, s.cfg.MaxEventBytes)
	}
	return value, held, nil
}
