package query

import (
	"bytes"
	"net/http"
	"strconv"
	"time"
)

// sseStall is how long a reader of a live stream may take nothing. Its connection may be half open, and its handler waits with it.
const sseStall = 30 * time.Second

// sse writes server-sent events. What is written goes out with flush.
type sse struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	retry time.Duration
	stall time.Duration // how long a reader may take nothing
	// begun: the header is out, and no refusal can be sent any more.
	begun bool
	b     bytes.Buffer
}

func newSSE(w http.ResponseWriter, retry, stall time.Duration) *sse {
	return &sse{w: w, rc: http.NewResponseController(w), retry: retry, stall: stall}
}

// begin sends the header, and how far the reader has come: what is cut before its first event can be resumed, too.
func (s *sse) begin(from cursor) {
	if s.begun {
		return
	}
	s.begun = true
	h := s.w.Header()
	h.Set("Content-Type", typeSSE)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would collect what comes
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

// event writes an event; at is nil for one that a reader cannot resume behind.
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

// comment writes a line that readers pass over.
func (s *sse) comment(text string) {
	s.b.WriteString(": ")
	s.b.WriteString(text)
	s.b.WriteString("\n\n")
}

// keptBuffer is how large a buffer may be that a silent stream keeps.
const keptBuffer = 4 << 10

// flush sends what was written.
func (s *sse) flush() error {
	if s.b.Len() == 0 {
		return nil
	}
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.stall)) // refused only by writers that are no connection
	_, err := s.w.Write(s.b.Bytes())
	if s.b.Reset(); s.b.Cap() > keptBuffer {
		s.b = bytes.Buffer{}
	}
	if err == nil {
		err = s.rc.Flush()
	}
	return callers(err)
}
