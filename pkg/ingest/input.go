package ingest

import (
	"bytes"
	"errors"
	"hash/maphash"
	"io"
	"net/http"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/eventstream"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/record"
)

// putInput serves PUT /v1/threads/{thread}/runs/{run}/input.
func (s *Service) putInput(c *front.Call, t target) error {
	b, err := s.openJSON(c, t, "an input")
	if err != nil {
		return err
	}
	defer b.close()
	by, err := producerOf(c.R.Header)
	if err != nil {
		return err
	}
	value, err := readJSON(b, s.maxInput(t), b.claim.Take)
	if err != nil {
		return err
	}
	in, err := decodeInput(value, b.claim)
	if err != nil {
		return err
	}
	if err := s.admitInput(c, t, value); err != nil {
		return err
	}
	s.sent.of(runKey{t.key, t.run}).sendInput(maphash.Bytes(s.sent.seed, value)) // even if Kafka does not acknowledge it, it may have it
	got, err := s.publishOne(c.R.Context(), t, record.KindInput, by, value)
	if err != nil {
		return err
	}
	return accept(c, http.StatusOK, struct {
		Partition int32     `json:"partition"`
		Offset    int64     `json:"offset"`
		Warnings  []warning `json:"warnings,omitempty"`
	}{got.Partition, got.FirstOffset, t.compareIDs(0, "the input", in.ThreadID, in.RunID)})
}

// admitInput calls admit for the input of a request.
func (s *Service) admitInput(c *front.Call, t target, value []byte) error {
	ctx, done := s.waiting(c.R.Context())
	defer done()
	return admit(ctx, t.quota, len(value), 0)
}

// decodeInput checks and decodes an input. Meanwhile, it holds memory for a second copy, which decoding may make.
func decodeInput(value []byte, h *front.Claim) (*agui.RunAgentInput, error) {
	if err := h.Take(int64(len(value))); err != nil {
		return nil, err
	}
	defer h.Give(int64(len(value)))
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

// maxInput returns the size limit of a tenant's inputs, in bytes.
func (s *Service) maxInput(t target) int {
	return quota.Smaller(s.cfg.MaxEventBytes, t.limits.MaxInputBytes)
}

// openJSON opens a request's body that must be one JSON value. The argument what names this value in refusals.
func (s *Service) openJSON(c *front.Call, t target, what string) (*body, error) {
	if m := mediaType(c.R); m != "" && m != typeJSON && (m != typeMergePatch || c.R.Method != http.MethodPatch) {
		return nil, front.Refuse(http.StatusUnsupportedMediaType, reasonMediaType, "cannot read %s as %.100q: set Content-Type to %s", what, m,
			typeJSON)
	}
	b, err := s.openBody(c, t, firstInput)
	if err == nil {
		b.pending(func() bool { return true })
	}
	return b, err
}

const (
	// firstInput is the size of the first buffer for an input, in bytes.
	firstInput = 4 << 10
	// inputSlack is how many bytes of white space may surround an input.
	inputSlack = 4 << 10
)

// readJSON reads a body and trims the white space around it, but does not check it. It acquires memory as bytes arrive, so
// a slow sender holds at most twice what it has sent.
func readJSON(b *body, limit int, take func(n int64) error) ([]byte, error) {
	var value []byte
	for {
		if len(value) == cap(value) {
			if len(value) > limit+inputSlack {
				return nil, tooLarge(limit)
			}
			size := min(max(2*cap(value), firstInput), limit+inputSlack+1)
			if err := take(int64(size - cap(value))); err != nil {
				return nil, err
			}
			value = append(make([]byte, 0, size), value...)
		}
		n, err := b.Read(value[len(value):cap(value)])
		value = value[:len(value)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, b.failed(err, 0)
		}
	}
	value = bytes.Trim(bytes.TrimPrefix(value, []byte("\xef\xbb\xbf")), eventstream.Space)
	if len(value) > limit {
		return nil, tooLarge(limit)
	}
	return value, nil
}
