package front

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// headerTimeout closes connections that never complete a request's headers, or a TLS handshake.
	headerTimeout = 10 * time.Second
	// idleTimeout is longer than that of common load balancers (60 s), so that the load balancer closes idle connections, and no request
	// arrives on one that is being closed.
	idleTimeout = 2 * time.Minute
	// headerBytes is the most that a request's line and headers may have, to which net/http adds 4 KiB. A path has two ids of up to 1.5 KiB
	// each, of which escapes make three times as much.
	headerBytes = 16 << 10
	// maxStreams bounds the requests at a time on one connection of HTTP/2, and streamBuffer what each may have sent ahead of its handler. A
	// connection may buffer as much as all of them, so that a request whose handler waits holds up no other.
	maxStreams, streamBuffer = 100, 40 << 10
	// RestGrace is how long the rest of a body that its handler has not read is read and dropped after the answer.
	RestGrace = time.Second
	// StallTimeout is how long a caller may read nothing of its answer.
	StallTimeout = 30 * time.Second
)

// NewServer returns a server of HTTP/1.1 and, on listeners with TLS that offer it, HTTP/2. Bodies and answers may last for ever: handlers
// bound them by progress (NewWriter).
func NewServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           bounded(handler),
		ReadHeaderTimeout: headerTimeout,
		MaxHeaderBytes:    headerBytes,
		IdleTimeout:       idleTimeout,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReceiveBufferPerStream:     streamBuffer,
			MaxReceiveBufferPerConnection: maxStreams * streamBuffer,
			WriteByteTimeout:              StallTimeout,
		},
	}
}

// bounded gives a caller RestGrace to end a body that its handler has not read, and StallTimeout to take what is left of its answer once
// the handler has returned: net/http would wait for both without an end.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		defer func() { _ = rc.SetWriteDeadline(time.Now().Add(StallTimeout)) }() // net/http lifts it when all is sent
		if r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		if r.Method == http.MethodGet || r.Method == http.MethodHead { // they mean nothing by it, so the answer does not wait for it
			w.Header().Set("Connection", "close")
		}
		// A copy of the request: net/http looks at its own body to see whether the connection can be used again.
		body := &readBody{ReadCloser: r.Body}
		r = r.WithContext(r.Context())
		r.Body = body
		defer func() {
			if !body.over.Load() {
				w.Header().Set("Connection", "close") // of an answer that has not begun
				_ = rc.SetReadDeadline(time.Now().Add(RestGrace))
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// readBody knows whether it was read to its end.
type readBody struct {
	io.ReadCloser
	over atomic.Bool
}

func (b *readBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.over.Store(true)
	}
	return n, err
}

const (
	// usualHead is what the head of a request may take without being counted.
	usualHead = 4 << 10
	// fieldBytes is what net/http takes for a header field beside its text: the entry of a map, a slice and two strings.
	fieldBytes = 100
)

// HeadBytes is what the line and the headers of a request take for as long as it goes on, as far as that is more than any request may:
// bytes to be counted for its tenant.
func HeadBytes(r *http.Request) int {
	n := len(r.RequestURI) + len(r.Host) - usualHead
	for name, values := range r.Header {
		for _, value := range values {
			n += fieldBytes + len(name) + len(value)
		}
	}
	return max(n, 0)
}

// Writer cuts off an answer whose caller reads nothing of it for a time, and remembers its status. Between two writes there is no deadline:
// HTTP/2 would end a stream that has nothing to say.
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

// SetWriteDeadline serves http.ResponseController: all that the handler writes has to be written by then, however fast it is read. Another
// goroutine may call it.
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
