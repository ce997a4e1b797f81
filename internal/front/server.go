package front

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skeinhq/skein/pkg/tenant"
)

const (
	// headerTimeout limits the time for a request's headers and for a TLS handshake.
	headerTimeout = 10 * time.Second
	// idleTimeout is longer than that of common load balancers (60 s), so that the load balancer closes idle connections.
	// Otherwise, a request could arrive on a connection that the server is closing.
	idleTimeout = 2 * time.Minute
	// headerBytes limits the size of a request's line and headers; net/http adds 4 KiB. A path has two ids of up to 1.5
	// KiB each when escaped (512 bytes, tripled).
	headerBytes = 16 << 10
	// maxStreams limits the concurrent requests on one HTTP/2 connection. streamBuffer limits the bytes that each request
	// may send before its handler reads them. The connection may buffer this much for every request, so that a request
	// whose handler waits does not block the others.
	maxStreams, streamBuffer = 100, 40 << 10
	// RestGrace is how long net/http reads and drops the rest of a body after the response.
	RestGrace = time.Second
	// StallTimeout is how long a caller may read nothing of its response.
	StallTimeout = 30 * time.Second
)

// NewServer returns a server for HTTP/1.1 and, on TLS listeners that offer it, HTTP/2. It sets no total time limit for
// bodies and responses; handlers limit them by progress (NewWriter).
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

// bounded limits two waits of net/http that are otherwise unlimited: that for the rest of a body that the handler has
// not read (RestGrace), and that for the rest of the response after the handler has returned (StallTimeout).
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		defer func() { _ = rc.SetWriteDeadline(time.Now().Add(StallTimeout)) }() // net/http removes it when everything is sent
		if r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		if r.Method == http.MethodGet || r.Method == http.MethodHead { // the body has no meaning, so do not wait for it
			w.Header().Set("Connection", "close")
		}
		// Copy the request, because net/http checks its own body to decide whether the connection can be used again.
		body := &body{ReadCloser: r.Body}
		r = r.WithContext(r.Context())
		r.Body = body
		defer func() {
			if !body.whole.Load() {
				w.Header().Set("Connection", "close") // has an effect only if the response has not begun
				_ = rc.SetReadDeadline(time.Now().Add(RestGrace))
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// body is a request's body. Reads fail once the caller's credentials have ended, even if they would not block.
type body struct {
	io.ReadCloser
	ctx   context.Context // from tenant.Watch; nil before the credentials are checked
	whole atomic.Bool     // read to its end; a deadline would now affect the connection's next request
}

func (b *body) Read(p []byte) (int, error) {
	if b.ctx != nil && tenant.Revoked(b.ctx) {
		return 0, os.ErrDeadlineExceeded // as after SetReadDeadline
	}
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.whole.Store(true)
	}
	return n, err
}

const (
	// usualHead is how many bytes of a request's line and headers are free.
	usualHead = 4 << 10
	// fieldBytes is the memory of a header field in net/http besides its text: a map entry, a slice and two strings.
	fieldBytes = 100
)

// HeadBytes returns by how many bytes a request's line and headers exceed usualHead. The tenant's memory includes these
// bytes while the request lasts.
func HeadBytes(r *http.Request) int {
	n := len(r.RequestURI) + len(r.Host) - usualHead
	for name, values := range r.Header {
		for _, value := range values {
			n += fieldBytes + len(name) + len(value)
		}
	}
	return max(n, 0)
}

// Writer aborts a response if the caller reads nothing for the stall timeout, and records the status. It sets no
// deadline between two writes, because HTTP/2 would end a silent stream.
type Writer struct {
	http.ResponseWriter
	rc     *http.ResponseController
	stall  time.Duration
	status int             // 0 before the response has begun
	count  func(bytes int) // called with the number of bytes sent; may be nil

	mu     sync.Mutex
	ending bool // the deadline is final: writes do not move it
}

// NewWriter returns a Writer with StallTimeout. A compressing writer must wrap the Writer, not the other way round.
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

// began sets the status of a response that does not call WriteHeader.
func (w *Writer) began() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
}

// stallPart is how many bytes Write sends before it extends the deadline by the stall timeout. It is smaller than the
// system's buffers of a connection, so that any caller that reads makes progress.
const stallPart = 64 << 10

// deadline sets the deadline of the next write, unless it is final. Zero means none.
func (w *Writer) deadline(until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ending {
		_ = w.rc.SetWriteDeadline(until) // fails only for the response writers of tests
	}
}

// SetWriteDeadline implements the optional method that http.ResponseController calls. The deadline is final: all of the
// handler's writes must end by then, however fast the caller reads. Another goroutine may call it.
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

// FlushError implements the optional method that http.ResponseController calls.
func (w *Writer) FlushError() error {
	w.began()
	w.deadline(time.Now().Add(w.stall))
	defer w.deadline(time.Time{})
	return w.rc.Flush()
}

// Flush implements http.Flusher for the compressing writer.
func (w *Writer) Flush() { _ = w.FlushError() } // the next write returns the error, too

// Unwrap implements the optional method that http.ResponseController calls.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
