package ingest

import (
	"bytes"
	"io"
	"net/http"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

// putInput is PUT /v1/threads/{thread}/runs/{run}/input.
func (s *Service) putInput(w http.ResponseWriter, r *http.Request, t target) {
	if m := mediaType(r); m != "" && m != typeJSON {
		s.refuse(w, r, callInput, reject(http.StatusUnsupportedMediaType, reasonMediaType, 0, "cannot take an input as %.100q: set Content-Type to %s", m, typeJSON), nil)
		return
	}
	b, rej := openBody(r, readBuffer)
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
