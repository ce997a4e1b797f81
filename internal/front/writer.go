package front

import (
	"net/http"
	"sync"
	"time"
)

// Writer cuts off an answer whose caller reads nothing of it for a time, and remembers its status. Between two writes there is no deadline: HTTP/2
// would end a stream that has nothing to say.
type Writer struct {
	http.ResponseWriter
	rc     *http.ResponseController
	stall  time.Duration
	status int             // 0 before the answer has begun
	count  func(bytes int) // called with what was sent; may be nil

	mu     sync.Mutex
	ending bool // the deadline is the last one: no write moves it
}

// NewWriter returns a writer that waits StallTimeout for its caller. Wrap it in what compresses, not the other way round.
func NewWriter(w http.ResponseWriter) *Writer {
	return &Writer{ResponseWriter: w, rc: http.NewResponseController(w), stall: StallTimeout}
}

// WriteHeader implements http.ResponseWriter.
func (w *Writer) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// began is for an answer whose status is not named.
func (w *Writer) began() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
}

// stallPart is how much of an answer a caller must read within the stall timeout. It is less than the system buffers per connection, so
// that a caller that reads at all makes progress.
const stallPart = 64 << 10

// deadline sets the deadline of the next write; zero is none.
func (w *Writer) deadline(until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ending {
		_ = w.rc.SetWriteDeadline(until) // only writers without a connection refuse it (tests)
	}
}

// SetWriteDeadline serves http.ResponseController: all that the handler writes has to be written by then, however fast it is read. Another goroutine
// may call it.
func (w *Writer) SetWriteDeadline(until time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ending = true
	return w.rc.SetWriteDeadline(until)
}

// Write implements http.ResponseWriter.
func (w *Writer) Write(b []byte) (n int, err error) {
	w.began()
	for len(b) > 0 && err == nil {
		part := b[:min(len(b), stallPart)]
		w.deadline(time.Now().Add(w.stall))
		var m int
		m, err = w.ResponseWriter.Write(part)
		n, b = n+m, b[m:]
	}
	w.deadline(time.Time{})
	if w.count != nil {
		w.count(n)
	}
	return n, err
}

// FlushError serves http.ResponseController.
func (w *Writer) FlushError() error {
	w.began()
	w.deadline(time.Now().Add(w.stall))
	defer w.deadline(time.Time{})
	return w.rc.Flush()
}

// Flush implements http.Flusher, which compression asks for.
func (w *Writer) Flush() { _ = w.FlushError() } // the next write tells

// Unwrap serves http.ResponseController.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
