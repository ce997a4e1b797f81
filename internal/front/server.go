package front

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// headerTimeout closes connections that never complete a request's headers, or a TLS handshake.
	headerTimeout = 10 * time.Second
	// idleTimeout is longer than that of common load balancers (60 s), so that the load balancer closes idle connections, and no request
	// arrives on one that is being closed.
	idleTimeout = 2 * time.Minute
	// headerBytes is the most that a request's line and headers may have, to which net/http adds 4 KiB. A path has two ids of up to 1.5 KiB each,
	// of which escapes make three times as much.
	headerBytes = 16 << 10
	// maxStreams bounds the requests at a time on one connection of HTTP/2, and streamBuffer what each may have sent ahead of its handler. A
	// connection may buffer as much as all of them, so that a request whose handler waits holds up no other.
	maxStreams, streamBuffer = 100, 40 << 10
	// RestGrace is how long the rest of a body that its handler has not read is read and dropped after the answer.
	RestGrace = time.Second
	// StallTimeout is how long a caller may read nothing of its answer.
	StallTimeout = 30 * time.Second
)

// NewServer returns a server of HTTP/1.1 and, on listeners with TLS that offer it, HTTP/2. Bodies and answers may last for ever: handlers bound
// them by progress (NewWriter).
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

// bounded gives a caller RestGrace to end a body that its handler has not read, and StallTimeout to take what is left of its answer once the
// handler has returned: net/http would wait for both without an end.
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
		body := &readBody{ReadCloser: r.Body}
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

// HeadBytes is what the line and the headers of a request take for as long as it goes on, as far as that is more than any request may: bytes to be
// counted for its tenant.
func HeadBytes(r *http.Request) int {
	n := len(r.RequestURI) + len(r.Host) - usualHead
	for name, values := range r.Header {
		for _, value := range values {
			n += fieldBytes + len(name) + len(value)
		}
	}
	return max(n, 0)
}
