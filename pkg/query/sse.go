package query

import (
	"bytes"
	"net/http"
	"strconv"
	"time"
)

// sse buffers server-sent events and sends them with flush.
type sse struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	retry time.Duration
	// begun: the header was sent, so the request can no longer be refused.
	begun bool
	b     bytes.Buffer
}

func newSSE(w http.ResponseWriter, retry time.Duration) *sse {
	return &sse{w: w, rc: http.NewResponseController(w), retry: retry}
}

// begin writes the header and the reader's own id, so that a stream that breaks off before its first event can be
// resumed too.
func (s *sse) begin(from cursor) {
	if s.begun {
		return
	}
	s.begun = true
	h := s.w.Header()
	h.Set("Content-Type", typeSSE)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // otherwise nginx buffers the stream
	s.w.WriteHeader(http.StatusOK)
	s.b.WriteString("retry: ")
	s.b.WriteString(strconv.FormatInt(s.retry.Milliseconds(), 10))
	s.b.WriteByte('\n')
	s.id(from)
	s.b.WriteByte('\n')
}

func (s *sse) id(c cursor) {
	s.b.WriteString("id: ")
	s.b.WriteString(c.String())
	s.b.WriteByte('\n')
}

// event writes an event; at is nil if a reader cannot resume after it.
func (s *sse) event(data []byte, at *cursor) {
	if at != nil {
		s.id(*at)
	}
	s.b.WriteString("data: ")
	if bytes.IndexByte(data, '\n') >= 0 || bytes.IndexByte(data, '\r') >= 0 {
		data = oneLine(data)
	}
	s.b.Write(data)
	s.b.WriteString("\n\n")
}

// comment writes a line that clients ignore.
func (s *sse) comment(text string) {
	s.b.WriteString(": ")
	s.b.WriteString(text)
	s.b.WriteString("\n\n")
}

// keptBuffer bounds the buffer that a stream keeps between two flushes.
const keptBuffer = 4 << 10

// flush sends the buffer.
func (s *sse) flush() error {
	if s.b.Len() == 0 {
		return nil
	}
	_, err := s.w.Write(s.b.Bytes())
	if s.b.Reset(); s.b.Cap() > keptBuffer {
		s.b = bytes.Buffer{}
	}
	if err == nil {
		err = s.rc.Flush()
	}
	return callers(err)
}
