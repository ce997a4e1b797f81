package query

import (
	"net/http"
	"sync"
	"time"
)

// stallWriter aborts an answer whose caller takes nothing of it for a time: what was read for it would stay in memory.
type stallWriter struct {
	http.ResponseWriter
	rc    *http.ResponseController
	stall time.Duration

	mu     sync.Mutex
	ending bool // the deadline is the last one: no write moves it
}

// stallPart is how much of a response a caller must read within the stall timeout. It is less than the system buffers per connection, so
// that a caller that reads at all makes progress.
const stallPart = 64 << 10

// impatient aborts responses whose caller does not read, while their handler writes: what is left then is the server's. It wraps the handler before
// compression.
func (s *Service) impatient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sw := &stallWriter{ResponseWriter: w, rc: http.NewResponseController(w), stall: s.cfg.Stall}
		next.ServeHTTP(sw, r)
	})
}

// begin sets the deadline of the next write.
func (w *stallWriter) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ending {
		_ = w.rc.SetWriteDeadline(time.Now().Add(w.stall)) // only writers without a connection refuse it
	}
}

// SetWriteDeadline serves http.ResponseController: all that the handler writes has to be written by then, however fast it is read. Another goroutine
// may call it.
func (w *stallWriter) SetWriteDeadline(until time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ending = true
	return w.rc.SetWriteDeadline(until)
}

// Write implements http.ResponseWriter.
func (w *stallWriter) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		part := b[:min(len(b), stallPart)]
		w.begin()
		var m int
		m, err = w.ResponseWriter.Write(part)
		n, b = n+m, b[m:]
	}
	return n, err
}

// FlushError serves http.ResponseController.
func (w *stallWriter) FlushError() error {
	w.begin()
	return w.rc.Flush()
}

// Flush implements http.Flusher, which compression asks for.
func (w *stallWriter) Flush() { _ = w.FlushError() } // the next write tells

// Unwrap serves http.ResponseController.
func (w *stallWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
