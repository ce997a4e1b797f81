package conns

import (
	"bytes"
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/skeinhq/skein/internal/problem"
)

// RFC 9112, 6.1: a request with Content-Length beside Transfer-Encoding ought to be handled as an error, as a server before this one may
// have understood it differently. net/http removes Content-Length before a handler sees it, so the head is looked at on its way in.

// NewServer returns a server for the connections of a Guard.
func NewServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:     admit(handler),
		ConnState:   headState,
		ConnContext: headContext,
		// "OPTIONS *" goes to the handler, which looks at its head.
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            headerTimeout,
		MaxHeaderBytes:               headerBytes,
		IdleTimeout:                  idleTimeout,
	}
}

// Guard returns a listener whose connections are guarded.
func Guard(l net.Listener) net.Listener { return newHeads(l) }

// Public is for what needs no credentials, so that no tenant's share bounds how many answers are on their way: meanwhile their connections count
// among those without a request, and so does one that has asked for nothing else.
func Public(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(headKey{}).(*headConn); ok {
			c.list(true, true)
		}
		next.ServeHTTP(w, r)
	})
}

// heads is a listener whose connections look at the heads of requests.
type heads struct {
	net.Listener
	long atomic.Int64 // what heads weigh beyond lightHead each

	most     int           // maxIdle
	grace    time.Duration // idleGrace
	sparing  time.Duration
	patience time.Duration // AnswerGrace

	mu sync.Mutex
	// Of *headConn without a request under way, the one that has been silent longest first: those that have had no request yet, or a public one last, and
	// those that are kept alive, whose callers may be about to use them again.
	idle, kept list.List
}

const (
	// headerTimeout closes connections that never complete a request's headers.
	headerTimeout = 10 * time.Second
	// idleTimeout is longer than that of common load balancers (60 s), so that the
	// load balancer closes idle connections, and no request arrives on one that is being closed. Those beyond maxIdle are closed earlier.
	idleTimeout = 2 * time.Minute
	// headerBytes is the most that a request's line and headers may have, to which net/http adds 4 KiB. A path has two ids of up to 1.5 KiB each.
	headerBytes = 32 << 10
	// maxIdle is how many connections may have no request under way. Where there are more, the one without any request so far that has been silent
	// longest is closed, if that is idleGrace: a request may be on its way. Silent means that no head has begun or ended since, and that nothing has come
	// which waits to be read, the latter for sparing at most. So is one that had requests, if such alone are more than maxIdle. Beyond four times as many
	// together one is closed in any case, after a look at maxSpared of them. They are closed, maxSurplus at once, when another connection comes, or begins
	// or ends a request.
	maxIdle    = 4_096
	idleGrace  = 5 * time.Second
	sparing    = headerTimeout
	maxSpared  = 16
	maxSurplus = 64
	// RestGrace is how long the rest of a body that its handler has not read to the end is read and dropped behind the answer.
	RestGrace = time.Second
	// AnswerGrace is how long a caller may take nothing of its answer, and of what is left of it when its handler has returned.
	AnswerGrace = 30 * time.Second
	// keptHead is the most room for heads that an idle connection keeps.
	keptHead = 4 << 10
	// skippedBytes is how many line ends net/http skips before a head.
	skippedBytes = 4
	// lightHead is the weight of a head that is always taken: its bytes, and lineBytes for each line, which net/http makes a field of.
	lightHead, lineBytes = 8 << 10, 128
	// maxLongHeads bounds what all heads together weigh beyond that.
	maxLongHeads = 8 << 20
	// maxFields is how many header fields a request may have.
	maxFields = 200
)

// errLongHeads closes a connection. To net/http it is one that broke: anything else it would answer with 400, as the caller's fault.
var errLongHeads = &net.OpError{Op: "read", Net: "tcp", Err: errors.New("requests whose headers are being read use all of their memory")}

func newHeads(l net.Listener) *heads {
	return &heads{Listener: l, most: maxIdle, grace: idleGrace, sparing: sparing, patience: AnswerGrace}
}

func (l *heads) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // net/http looks at it
	}
	h := &headConn{Conn: c, of: l}
	h.rest(false)
	return h, nil
}

// rest notes that the connection was opened or is done with a request, or that a head has begun on it, and that no request is under way on it unless
// its head has passed.
func (c *headConn) rest(begun bool) { c.list(begun, false) }

// list puts the connection behind all others that rest; public is whether it does so while its request is answered.
func (c *headConn) list(begun, public bool) {
	l := c.of
	l.mu.Lock()
	if !c.closed && (public || !c.passed.Load()) {
		if c.resting != nil {
			c.among().Remove(c.resting)
		}
		c.used = c.used && !public
		now := time.Now()
		c.resting, c.since, c.silent, c.begun = c.among().PushBack(c), now, now, begun
	}
	var surplus []*headConn
	for len(surplus) < maxSurplus { // what is left goes with the next
		oldest := l.surplus()
		if oldest == nil {
			break
		}
		surplus = append(surplus, oldest)
	}
	l.mu.Unlock()
	for _, oldest := range surplus {
		oldest.drop()
	}
}

// among is where the connection rests.
func (c *headConn) among() *list.List {
	if c.used {
		return &c.of.kept
	}
	return &c.of.idle
}

// surplus takes the connection that is to be closed, as maxIdle has it, from its list; nil where none is.
func (l *heads) surplus() *headConn {
	for range maxSpared {
		of := l.tooMany()
		if of == nil {
			return nil
		}
		if oldest := of.Front().Value.(*headConn); !oldest.begun && time.Since(oldest.since) < l.sparing && oldest.unread() {
			of.MoveToBack(oldest.resting)
			oldest.silent = time.Now()
			continue
		}
		return l.take(of)
	}
	if l.idle.Len()+l.kept.Len() > 4*l.most {
		return l.take(l.tooMany())
	}
	return nil
}

// tooMany is the list whose first connection is to be closed, nil where none is.
func (l *heads) tooMany() *list.List {
	silent := func(of *list.List) bool {
		return of.Len() > 0 && time.Since(of.Front().Value.(*headConn).silent) >= l.grace
	}
	switch n := l.idle.Len() + l.kept.Len(); {
	case n <= l.most:
		return nil
	case silent(&l.idle):
		return &l.idle
	case l.kept.Len() > l.most && (silent(&l.kept) || n > 4*l.most):
		return &l.kept
	case n > 4*l.most:
		return &l.idle
	default:
		return nil
	}
}

// take takes a list's first connection from it, to be closed.
func (l *heads) take(of *list.List) *headConn {
	first := of.Remove(of.Front()).(*headConn)
	first.resting, first.closed = nil, true
	return first
}

// unread reports whether something has come that nobody has read: either this process is late, or its reader waits to write.
func (c *headConn) unread() bool {
	raw, ok := c.raw().(syscall.Conn)
	return ok && unread(raw)
}

// raw is the connection below TLS.
func (c *headConn) raw() net.Conn {
	if t, ok := c.Conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return c.Conn
}

// drop closes a connection on which nobody waits for an answer, without the word that TLS says first: the other side may not take it.
func (c *headConn) drop() {
	_ = c.raw().Close() // net/http finds it closed, and closes the headConn
}

// wake notes that a request is under way, whose head has passed, or that the connection is closed. It reports whether that was so before: nobody
// would read an answer.
func (c *headConn) wake(closed bool) (dropped bool) {
	l := c.of
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.resting != nil {
		c.among().Remove(c.resting)
		c.resting = nil
	}
	c.used = c.used || !closed
	dropped, c.closed = c.closed, c.closed || closed
	return dropped
}

// headConn looks at what comes until the end of a request's head.
type headConn struct {
	net.Conn
	of     *heads
	passed atomic.Bool // a head has come: what follows is its body

	// Under the lock of of: the place in its idle or kept, nil while a request is under way, since when the connection rests, and since when it is
	// taken as silent, which is later if it was spared.
	resting *list.Element
	since   time.Time
	silent  time.Time
	begun   bool // a head has begun since
	used    bool // it has had a request, and the last one was not public
	closed  bool

	ended time.Time // when the handler of a request had returned whose body it had not read to the end; zero else

	mu      sync.Mutex // net/http waits for the next request while a handler works
	head    []byte
	skipped int   // line ends before head
	lines   int   // of head
	long    int64 // what the head counts in of
}

// count counts what the head weighs beyond lightHead.
func (c *headConn) count() error {
	more := int64(max(0, len(c.head)+lineBytes*c.lines-lightHead)) - c.long
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
	c.head, c.lines = nil, 0
	_ = c.count() // less is no error
	c.mu.Unlock()
	return c.Conn.Close() //nolint:wrapcheck // net/http looks at it
}

func (c *headConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.passed.Load() {
		c.mu.Lock()
		part := p[:n]
		if len(c.head) == 0 { // net/http skips what may stand behind the body of a POST
			for len(part) > 0 && c.skipped < skippedBytes && (part[0] == '\r' || part[0] == '\n') {
				part, c.skipped = part[1:], c.skipped+1
			}
		}
		from, begins := max(0, len(c.head)-2), len(c.head) == 0 && len(part) > 0
		c.head = append(c.head, part...)
		_, whole := cutHead(c.head[from:])
		if whole = whole || len(c.head) > headerBytes; !whole { // what follows a whole head is no line of it
			c.lines += bytes.Count(part, []byte("\n"))
		}
		long := c.count()
		c.mu.Unlock()
		if begins || whole { // not in between: a head that comes byte by byte wins no more time
			c.rest(true) // until it is admitted: net/http may refuse it, and wait for ever to say so
		}
		if whole { // else a handler may have found the head whole by now
			c.passed.Store(true)
		}
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
	c.mu.Lock()
	defer c.mu.Unlock()
	head, whole := cutHead(c.head)
	line, fields, _ := bytes.Cut(head, []byte("\n"))
	whole = whole && bytes.Contains(line, []byte(" HTTP/1."))
	length = hasField(fields, "content-length")
	if c.head, c.lines, c.skipped = c.head[:0], 0, 0; cap(c.head) > keptHead {
		c.head = nil
	}
	_ = c.count() // less is no error
	return whole, length
}

// headState notes that a connection is idle, and has the head of its next request looked at.
func headState(c net.Conn, s http.ConnState) {
	h, ok := c.(*headConn)
	if !ok || s != http.StateIdle {
		return
	}
	if !h.ended.IsZero() && time.Since(h.ended) >= RestGrace {
		h.drop() // the deadline may have cancelled the context of requests to come
		return
	}
	h.ended = time.Time{}
	h.passed.Store(false)
	h.rest(false)
}

type headKey struct{}

// headContext lets a handler find its connection.
func headContext(ctx context.Context, c net.Conn) context.Context {
	if h, ok := c.(*headConn); ok {
		return context.WithValue(ctx, headKey{}, h)
	}
	return ctx
}

// admit refuses requests that say the length of their body twice, or have too many fields. Behind a chunked one whose head was not seen whole, since
// it came with the end of the request before, the connection is closed, as RFC 9112 has it for those that are not refused.
//
// What a request sends beyond what its handler reads is dropped for a moment only, and who takes nothing of its answer is cut off: net/http would wait
// for both without an end.
func admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(headKey{}).(*headConn)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		whole, length := c.taken()
		if c.wake(false) {
			panic(http.ErrAbortHandler)
		}
		r.TLS = c.state()
		patience := func() { // net/http lifts it when all is sent
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(c.of.patience)) // a connection of HTTP/1.1 takes it
		}
		defer patience()
		if r.ContentLength != 0 {
			// "100 Continue" is sent within it. Handlers set their own deadline for what they write.
			patience()
			if r.Method == http.MethodGet || r.Method == http.MethodHead { // they mean nothing by it, so the answer does not wait for it
				w.Header().Set("Connection", "close")
			}
			body := &readBody{ReadCloser: r.Body}
			r.Body = body
			defer func() {
				if !body.over.Load() {
					c.ended = time.Now()
					_ = http.NewResponseController(w).SetReadDeadline(c.ended.Add(RestGrace)) // a connection of HTTP/1.1 takes it
				}
			}()
		}
		if n := fields(r.Header); n > maxFields {
			w.Header().Set("Connection", "close")
			problem.Write(w, problem.Problem{
				Status: http.StatusRequestHeaderFieldsTooLarge, Detail: fmt.Sprintf("the request has %d header fields: at most %d are allowed", n, maxFields),
			})
			return
		}
		switch {
		case len(r.TransferEncoding) == 0:
		case !whole:
			w.Header().Set("Connection", "close")
		case length:
			w.Header().Set("Connection", "close")
			problem.Write(w, problem.Problem{Status: http.StatusBadRequest, Detail: "the request has Content-Length beside Transfer-Encoding: send one of them"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// fields counts the fields of a head.
func fields(h http.Header) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
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
	return n, err //nolint:wrapcheck // a body's own error
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
