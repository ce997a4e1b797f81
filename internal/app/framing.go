package app

import (
	"bytes"
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skeinhq/skein/internal/problem"
)

// RFC 9112, 6.1: a request with Content-Length beside Transfer-Encoding ought to be handled as an error, as a server before this one may
// have understood it differently. net/http removes Content-Length before a handler sees it, so the head is looked at on its way in.

// heads is a listener whose connections look at the heads of requests. It bounds what is held before anybody knows whose it is: long heads, and
// connections without a request.
type heads struct {
	net.Listener
	long atomic.Int64 // bytes of heads beyond keptHead each

	mu   sync.Mutex
	most int       // connections without a request under way
	idle list.List // of them, as *headConn; the one that has been so longest is first
}

const (
	// maxIdle is how many connections may have no request under way, be they new or kept alive. With one more those are closed that have had none
	// longest, idleGrace at least, and new ones wait for that: a request that is on its way must not be cut.
	maxIdle   = 4_096
	idleGrace = time.Second
	// keptHead is the size of a head that is always taken, and the most room for heads that an idle connection keeps.
	keptHead = 4 << 10
	// maxLongHeads bounds what all heads together have beyond that.
	maxLongHeads = 8 << 20
)

// errLongHeads closes a connection. To net/http it is one that broke: anything else it would answer with 400, as the caller's fault.
var errLongHeads = &net.OpError{Op: "read", Net: "tcp", Err: errors.New("requests whose headers are being read use all of their memory")}

func newHeads(l net.Listener) *heads { return &heads{Listener: l, most: maxIdle} }

func (l *heads) Accept() (net.Conn, error) {
	for l.crowded() {
		time.Sleep(time.Millisecond)
	}
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // net/http looks at it
	}
	h := &headConn{Conn: c, of: l}
	h.rest()
	return h, nil
}

// crowded closes connections as maxIdle has it. It reports whether there are still as many.
func (l *heads) crowded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for oldest := l.idle.Front(); oldest != nil && l.idle.Len() >= l.most; oldest = l.idle.Front() {
		c := oldest.Value.(*headConn)
		if time.Since(c.rests) < idleGrace {
			return true
		}
		l.idle.Remove(oldest)
		c.resting = nil
		go func() { _ = c.Close() }() // nobody waits for an answer on it; TLS may wait to say that it ends
	}
	return false
}

// rest notes that no request is under way on the connection.
func (c *headConn) rest() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.resting == nil && !c.closed {
		c.resting, c.rests = c.of.idle.PushBack(c), time.Now()
	}
}

// wake notes that a request is under way, or that the connection is closed for good.
func (c *headConn) wake(closed bool) {
	l := c.of
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.closed = c.closed || closed; c.resting != nil {
		l.idle.Remove(c.resting)
		c.resting = nil
	}
}

// headConn looks at what comes until the end of a request's head.
type headConn struct {
	net.Conn
	of     *heads
	passed atomic.Bool // a head has come: what follows is its body

	// Under the lock of of: the place in its idle, nil while a request is under way, and since when that is.
	resting *list.Element
	rests   time.Time
	closed  bool

	mu   sync.Mutex // net/http waits for the next request while a handler works
	head []byte
	long int64 // what the head counts in of
}

// count counts the head's bytes beyond keptHead.
func (c *headConn) count() error {
	more := int64(max(0, len(c.head)-keptHead)) - c.long
	if more == 0 {
		return nil
	}
	c.long += more
	if all := c.of.long.Add(more); more > 0 && all > maxLongHeads {
		return errLongHeads
	}
	return nil
}

// Close implements net.Conn.
func (c *headConn) Close() error {
	c.wake(true)
	c.mu.Lock()
	c.head = nil
	_ = c.count() // less is no error
	c.mu.Unlock()
	return c.Conn.Close() //nolint:wrapcheck // net/http looks at it
}

func (c *headConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.passed.Load() {
		c.mu.Lock()
		from := max(0, len(c.head)-2)
		c.head = append(c.head, p[:n]...)
		_, whole := cutHead(c.head[from:])
		c.passed.Store(whole || len(c.head) > headerBytes)
		long := c.count()
		c.mu.Unlock()
		if long != nil {
			return 0, long
		}
	}
	return n, err //nolint:wrapcheck // net/http looks at it
}

// CloseWrite ends the sending half: net/http does so before it closes a connection whose client may still send, so that the client reads its
// answer and not a reset.
func (c *headConn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite() //nolint:wrapcheck // net/http looks at it
}

// state is the TLS state of a request on the connection, which net/http finds on a *tls.Conn only; nil without TLS.
func (c *headConn) state() *tls.ConnectionState {
	t, ok := c.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	state := t.ConnectionState()
	return &state
}

// cutHead returns what stands before the first empty line. As for net/http, a line ends with LF, with or without CR before it.
func cutHead(b []byte) (head []byte, found bool) {
	for i, c := range b {
		if c != '\n' {
			continue
		}
		if next := bytes.TrimPrefix(b[i+1:], []byte("\r")); len(next) > 0 && next[0] == '\n' {
			return b[:i+1], true
		}
	}
	return b, false
}

// taken ends the look at a request's head. It reports whether the head was seen whole, and whether it has Content-Length.
func (c *headConn) taken() (whole, length bool) {
	c.passed.Store(true)
	c.wake(false)
	c.mu.Lock()
	defer c.mu.Unlock()
	head, whole := cutHead(c.head)
	line, fields, _ := bytes.Cut(head, []byte("\n"))
	whole = whole && bytes.Contains(line, []byte(" HTTP/1."))
	length = hasField(fields, "content-length")
	if c.head = c.head[:0]; cap(c.head) > keptHead {
		c.head = nil
	}
	_ = c.count() // less is no error
	return whole, length
}

// headState notes that a connection is idle, and has the head of its next request looked at.
func headState(c net.Conn, s http.ConnState) {
	if h, ok := c.(*headConn); ok && s == http.StateIdle {
		h.passed.Store(false)
		h.rest()
	}
}

type headKey struct{}

// headContext lets a handler find its connection.
func headContext(ctx context.Context, c net.Conn) context.Context {
	if h, ok := c.(*headConn); ok {
		return context.WithValue(ctx, headKey{}, h)
	}
	return ctx
}

// oneLength refuses requests that say the length of their body twice. Behind a chunked one whose head was not seen whole, since
// it came with the end of the request before, the connection is closed, as RFC 9112 has it for those that are not refused.
func oneLength(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(headKey{}).(*headConn); ok {
			r.TLS = c.state()
			switch whole, length := c.taken(); {
			case len(r.TransferEncoding) == 0:
			case !whole:
				w.Header().Set("Connection", "close")
			case length:
				w.Header().Set("Connection", "close")
				problem.Write(w, problem.Problem{Status: http.StatusBadRequest, Detail: "the request has Content-Length beside Transfer-Encoding: send one of them"})
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// hasField reports whether a field is among those of a head.
func hasField(fields []byte, name string) bool {
	for line := range bytes.Lines(fields) {
		if field, _, ok := bytes.Cut(line, []byte(":")); ok && bytes.EqualFold(bytes.TrimSpace(field), []byte(name)) {
			return true
		}
	}
	return false
}
