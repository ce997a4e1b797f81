package query

import (
	"bytes"
	"fmt"
	"net/http"
)

// sse buffers server-sent events and sends them with flush.
type sse struct {
	w http.ResponseWriter
	// begun: the header was sent, so the request can no longer be refused.
	begun bool
	b     bytes.Buffer
}

// begin writes the header, the milliseconds after which a reader reconnects once the stream has ended, and the reader's own id, so that a
// stream that breaks off before its first event can be resumed too.
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
	fmt.Fprintf(&s.b, "retry: 1000\nid: %s\n\n", from)
}

// event writes an event; at is nil if a reader cannot resume after it.
func (s *sse) event(data []byte, at *cursor) {
	if at != nil {
		fmt.Fprintf(&s.b, "id: %s\n", at)
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
	fmt.Fprintf(&s.b, ": %s\n\n", text)
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
		err = http.NewResponseController(s.w).Flush()
	}
	return callers(err)
}
