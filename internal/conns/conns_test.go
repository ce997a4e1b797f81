package conns

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/problem"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestServer_RefusesTwoLengthsOfABody(t *testing.T) {
	l := serveHeads(t, func(*heads) {}, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %v", body, err) // the answer is read
	})
	const chunked = "3\r\nabc\r\n0\r\n\r\n"
	for name, tc := range map[string]struct {
		requests string
		status   []int
		closed   bool
	}{
		"chunks":                     {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked, []int{200}, false},
		"a length":                   {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", []int{200}, false},
		"both":                       {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n" + chunked, []int{400}, true},
		"both, the other way round":  {"POST / HTTP/1.1\r\nHost: x\r\ncontent-length:3\r\nTRANSFER-ENCODING:chunked\r\n\r\n" + chunked, []int{400}, true},
		"both, behind a bare LF":     {"POST / HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\nContent-Length: 3\n\n" + chunked, []int{400}, true},
		"both, one behind a bare LF": {"POST / HTTP/1.1\nContent-Length: 3\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\n" + chunked, []int{400}, true},
		"chunks behind a bare LF":    {"POST / HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\n" + chunked, []int{200}, false},
		"both behind another request": {"GET / HTTP/1.1\r\nHost: x\r\n\r\nPOST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n" + chunked,
			[]int{200, 200}, true}, // it cannot be told from one without a length, and ends the connection
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if _, err := io.WriteString(c, tc.requests); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(c)
			var last *http.Response
			for _, want := range tc.status {
				if last, err = http.ReadResponse(r, nil); err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(last.Body)
				_ = last.Body.Close()
				if err != nil || last.StatusCode != want {
					t.Errorf("answer is %s %s, %v, want %d", last.Status, body, err, want)
				}
			}
			if last.Close != tc.closed {
				t.Errorf("the connection is closed: %v, want %v", last.Close, tc.closed)
			}
			if !tc.closed { // the next request on the connection is looked at, too
				if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n"+chunked); err != nil {
					t.Fatal(err)
				}
				next, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				_ = next.Body.Close()
				if next.StatusCode != http.StatusBadRequest {
					t.Errorf("both on the next request: %s", next.Status)
				}
			}
		})
	}
}

// A client that is still sending must read its answer, and not a reset: net/http half-closes connections that allow it.
func TestHeads_LetConnectionsBeHalfClosed(t *testing.T) {
	l := listen(t)
	defer func() { _ = l.Close() }()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	server, err := newHeads(l).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	half, ok := server.(interface{ CloseWrite() error })
	if !ok {
		t.Fatal("it cannot")
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the client reads %v", err)
	}
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(server, make([]byte, 1)); err != nil {
		t.Errorf("what the client still sends: %v", err)
	}
}

// Heads are read before anybody knows whose they are: long ones are bounded together, and keep no ordinary one out.
func TestHeads_BoundLongOnesTogether(t *testing.T) {
	l := listen(t)
	hs := newHeads(l)
	srv := NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	served := make(chan struct{})
	go func() {
		_ = srv.Serve(hs) // until Close
		close(served)
	}()
	status := func(field string) string {
		t.Helper()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nX: "+field+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return "closed"
		}
		_ = resp.Body.Close()
		return resp.Status[:3]
	}
	long := strings.Repeat("x", 24<<10)
	if got := status(long); got != "204" {
		t.Errorf("a long head alone: %s", got)
	}
	if n := hs.long.Load(); n != 0 {
		t.Errorf("%d bytes are counted when no head is being read", n)
	}
	hs.long.Store(maxLongHeads - 10<<10) // others
	if got := status(long); got != "closed" {
		t.Errorf("a long head where there is no room: %s", got)
	}
	if got := status("x"); got != "204" {
		t.Errorf("an ordinary head where there is no room: %s", got)
	}
	hs.long.Store(maxLongHeads)
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(headerTimeout / 2)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\n"+strings.Repeat("a:\r\n", 100)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a head of many fields where there is no room is waited for")
	}
	hs.long.Store(maxLongHeads - 10<<10)
	_ = srv.Close()
	<-served
	if n := hs.long.Load(); n != maxLongHeads-10<<10 {
		t.Errorf("%d bytes are counted, want those of others", n)
	}
}

// serveHeads serves on a listener of its own, which is returned.
func serveHeads(t *testing.T, set func(*heads), handler http.HandlerFunc) net.Listener {
	t.Helper()
	l := listen(t)
	hs := newHeads(l)
	set(hs)
	server := NewServer(handler)
	server.ReadHeaderTimeout = time.Minute // longer than any wait here: what ends before is not ended by it
	served := make(chan error, 1)
	go func() { served <- server.Serve(hs) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		hs.mu.Lock()
		defer hs.mu.Unlock()
		if n := hs.idle.Len() + hs.kept.Len(); n != 0 {
			t.Errorf("%d connections are still noted as idle", n)
		}
	})
	return l
}

func dial(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second)) // TCP takes it
	return c
}

// ask sends a request and demands the status.
func ask(t *testing.T, c net.Conn, request string, want int) *bufio.Reader {
	t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, fmt.Sprintf("HTTP/1.1 %d ", want)) {
		t.Fatalf("%q is answered %q, %v", request, line, err)
	}
	return r
}

// ended demands that a connection has no more than an answer's rest to read.
func ended(t *testing.T, r io.Reader) {
	t.Helper()
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Errorf("the connection does not end: %v", err)
	}
}

// Connections without a request are bounded: the one that has been silent longest is closed, and none on which a request is under way.
func TestHeads_ClosesWhoHasBeenSilentLongest(t *testing.T) {
	goOn := make(chan struct{})
	l := serveHeads(t, func(hs *heads) { hs.most, hs.grace = 3, 0 }, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			_ = http.NewResponseController(w).Flush() // the caller reads it
			<-goOn
		}
	})
	const get, getLong = "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET /long HTTP/1.1\r\nHost: x\r\n\r\n"
	long := dial(t, l)
	answer := ask(t, long, getLong, http.StatusOK)
	silent := dial(t, l) // it never asks anything
	var kept []net.Conn
	for range 3 {
		kept = append(kept, dial(t, l))
		ask(t, kept[len(kept)-1], get, http.StatusOK)
	}
	ended(t, silent)
	for _, c := range kept {
		ask(t, c, get, http.StatusOK)
	}
	close(goOn)
	if rest, err := io.ReadAll(io.LimitReader(answer, 1)); err != nil || len(rest) == 0 {
		t.Errorf("the request under way is answered %q, %v", rest, err)
	}
}

// A connection on which a request is on its way is not silent.
func TestHeads_CloseNobodyWhoIsAboutToAsk(t *testing.T) {
	var hs *heads
	l := serveHeads(t, func(h *heads) {
		hs = h
		hs.most, hs.grace = 2, 0
	}, func(http.ResponseWriter, *http.Request) {})
	asking, silent := dial(t, l), dial(t, l)
	await(t, "both rest", func() bool { return hs.idle.Len() == 2 }, &hs.mu)
	if _, err := io.WriteString(asking, "GET / HTTP/1.1\r\n"); err != nil {
		t.Fatal(err)
	}
	await(t, "the one that asks rests behind the other", func() bool {
		return hs.idle.Back().Value.(*headConn).RemoteAddr().String() == asking.LocalAddr().String()
	}, &hs.mu)
	dial(t, l)
	ended(t, silent)
	ask(t, asking, "Host: x\r\n\r\n", http.StatusOK)
}

// A head that comes byte by byte holds its connection no longer than one that stops.
func TestHeads_CloseWhoNeverGetsToAsk(t *testing.T) {
	var hs *heads
	l := serveHeads(t, func(h *heads) {
		hs = h
		hs.most, hs.grace = 1, 0
	}, func(http.ResponseWriter, *http.Request) {})
	slow := dial(t, l)
	await(t, "it rests", func() bool { return hs.idle.Len() == 1 }, &hs.mu)
	c := hs.idle.Front().Value.(*headConn)
	opened := c.silent
	var begun time.Time
	for i, part := range []string{"G", "E", "T", " "} {
		if _, err := io.WriteString(slow, part); err != nil {
			t.Fatal(err)
		}
		await(t, "it is read", func() bool { return len(c.head) == i+1 }, &c.mu)
		if i == 0 {
			await(t, "a head has begun", func() bool { begun = c.silent; return !begun.Equal(opened) }, &hs.mu)
		}
	}
	ask(t, dial(t, l), "GET / HTTP/1.1\r\nHost: x\r\n\r\n", http.StatusOK)
	ended(t, slow)
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if !c.silent.Equal(begun) {
		t.Errorf("the parts of a head win %v", c.silent.Sub(begun))
	}
}

// Who asks is served, also if its connection is the next one to be closed, and all that are too many are closed at once.
func TestHeads_CloseNobodyWhoAsks(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, kept := range []bool{false, true} {
		var hs *heads
		l := serveHeads(t, func(h *heads) {
			hs = h
			hs.most, hs.grace = 2, time.Hour
		}, func(http.ResponseWriter, *http.Request) {})
		var there []net.Conn
		for range 6 {
			c := dial(t, l)
			of := &hs.idle
			if kept {
				ask(t, c, get, http.StatusOK)
				of = &hs.kept
			}
			there = append(there, c)
			await(t, "it rests", func() bool { return of.Len() == len(there) }, &hs.mu)
		}
		hs.mu.Lock()
		hs.grace = 0
		hs.mu.Unlock()
		ask(t, there[0], get, http.StatusOK)
		for _, c := range there[1:5] {
			ended(t, c)
		}
		for _, c := range there[5:] {
			ask(t, c, get, http.StatusOK)
		}
	}
}

// A connection whose request has come is not closed where it is this process that is late to read it; beyond four times as many as may rest, one is
// closed in any case.
func TestHeads_CloseNobodyWhoseRequestWaitsToBeRead(t *testing.T) {
	listener := listen(t)
	hs := newHeads(listener)
	t.Cleanup(func() { _ = hs.Close() })
	hs.most, hs.grace = 1, 0
	accept := func(sends string) (mine, theirs net.Conn) {
		t.Helper()
		theirs = dial(t, listener)
		if _, err := io.WriteString(theirs, sends); err != nil {
			t.Fatal(err)
		}
		mine, err := hs.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = mine.Close() })
		return mine, theirs
	}
	const get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	asks, _ := accept(get)
	_, silent := accept("")
	ended(t, silent)
	begun, sends := accept("GET")
	if _, err := begun.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := sends.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) { // what it sent may never be read: a reset
		t.Errorf("a head that has begun, of which a part is not read, is not closed: %v", err)
	}

	there := []net.Conn{asks}
	for range 3 {
		mine, _ := accept(get)
		there = append(there, mine)
	}
	hs.mu.Lock()
	hs.grace = time.Hour
	hs.mu.Unlock()
	for _, c := range there {
		if n, err := c.Read(make([]byte, len(get))); err != nil || n != len(get) {
			t.Errorf("%d bytes of a request are read: %v", n, err)
		}
	}
	count := func(what string, want int) {
		t.Helper()
		hs.mu.Lock()
		defer hs.mu.Unlock()
		if n := hs.idle.Len(); n != want {
			t.Errorf("%d connections are there %s, want %d", n, what, want)
		}
	}
	count("whose requests were read and not admitted", len(there))
	parts, rest := accept("GET / HTTP/1.1\r\n")
	var began time.Time
	for _, part := range []string{"Host: x\r\n\r\n", ""} {
		if _, err := parts.Read(make([]byte, len(get))); err != nil {
			t.Fatal(err)
		}
		hs.mu.Lock()
		if since := parts.(*headConn).since; !since.After(began) {
			t.Error("a head that ends wins no time")
		} else {
			began = since
		}
		hs.mu.Unlock()
		if _, err := io.WriteString(rest, part); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 * maxSpared {
		accept(get)
	}
	count("whose requests wait to be read", 4*hs.most)
	hs.mu.Lock()
	hs.grace, hs.sparing = 0, 0
	hs.mu.Unlock()
	accept(get)
	count("whose requests wait to be read for longer than they are spared", 1)
}

// What stands before a head is no head, where net/http skips it, and else counts as one.
func TestHeads_LookBehindLineEnds(t *testing.T) {
	var hs *heads
	l := serveHeads(t, func(h *heads) { hs = h }, func(http.ResponseWriter, *http.Request) {})
	const post = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"
	c := dial(t, l)
	ask(t, c, post+"\r\n", http.StatusOK)
	ask(t, c, "\r\n\r\n"+post+"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", http.StatusBadRequest)

	c = dial(t, l)
	if _, err := io.WriteString(c, strings.Repeat("\r", 2*lightHead)); err != nil {
		t.Fatal(err)
	}
	await(t, "line ends count", func() bool { return hs.long.Load() > 0 }, &hs.mu)
}

// await waits until what is looked at under a lock is so.
func await(t *testing.T, what string, so func() bool, mu sync.Locker) {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		mu.Lock()
		ok := so()
		mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("not after 10 s: %s", what)
		}
	}
}

// Where a connection was closed as its request came, nothing is done for it.
func TestAdmit_DoesNothingForAConnectionThatIsClosed(t *testing.T) {
	c := &headConn{of: newHeads(nil), closed: true}
	r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
	r = r.WithContext(context.WithValue(r.Context(), headKey{}, c))
	defer func() {
		if got := recover(); got != http.ErrAbortHandler { //nolint:errorlint // the value itself
			t.Errorf("it ends with %v", got)
		}
	}()
	admit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request is handled") })).ServeHTTP(httptest.NewRecorder(), r)
}

// However often the connections that are there ask, one that comes is served, and there are never more than four times as many as may rest.
func TestHeads_ServesWhoComesWhileAllOthersAsk(t *testing.T) {
	const most = 4
	l := serveHeads(t, func(hs *heads) { hs.most, hs.grace = most, time.Hour }, func(http.ResponseWriter, *http.Request) {})
	const get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	var there []net.Conn
	for range 4 * most {
		there = append(there, dial(t, l))
	}
	for range 3 {
		for _, c := range there {
			ask(t, c, get, http.StatusOK)
		}
	}
	ask(t, dial(t, l), get, http.StatusOK)
	over := make(chan error, len(there))
	for _, c := range there { // the one whose answer the server was done with first is closed; the others end with the test
		go func() {
			_, err := io.Copy(io.Discard, c)
			over <- err
		}()
	}
	if err := <-over; err != nil {
		t.Errorf("of %d connections that rest, none is closed: %v", len(there)+1, err)
	}
}

// An answer that needs no credentials may be given up, as a connection without a request is, and before those of callers that have some.
func TestPublic_AnswersAreGivenUpWhereConnectionsAreTooMany(t *testing.T) {
	var hs *heads
	wait := make(chan struct{})
	public := Public(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "public")
		_ = http.NewResponseController(w).Flush() // the caller reads it
		if r.URL.Path == "/public/slow" {
			<-wait
		}
	}))
	l := serveHeads(t, func(h *heads) {
		hs = h
		hs.most, hs.grace = 2, time.Hour
	}, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/public") {
			public.ServeHTTP(w, r)
		}
	})
	const get, getPublic, getSlow = "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET /public HTTP/1.1\r\nHost: x\r\n\r\n", "GET /public/slow HTTP/1.1\r\nHost: x\r\n\r\n"
	kept := dial(t, l)
	ask(t, kept, get, http.StatusOK)
	slow, asked := dial(t, l), dial(t, l)
	answer := ask(t, slow, getSlow, http.StatusOK)
	ask(t, asked, get, http.StatusOK)
	ask(t, asked, getPublic, http.StatusOK)
	ask(t, asked, getPublic, http.StatusOK) // it is no less there for that
	await(t, "all are there", func() bool { return hs.kept.Len() == 1 && hs.idle.Len() == 2 }, &hs.mu)
	hs.mu.Lock()
	hs.grace = 0
	hs.mu.Unlock()
	other := dial(t, l)
	ask(t, other, get, http.StatusOK)
	if _, err := io.Copy(io.Discard, answer); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an answer that nobody reads goes on: %v", err)
	}
	close(wait)
	ask(t, kept, get, http.StatusOK)
	ask(t, other, get, http.StatusOK)
}

// Answers that nobody reads hold no connection, whoever wrote them.
func TestServer_GivesUpAnswersThatNobodyReads(t *testing.T) {
	l := serveHeads(t, func(hs *heads) { hs.patience = 100 * time.Millisecond }, func(w http.ResponseWriter, _ *http.Request) {
		problem.Write(w, problem.Problem{Status: http.StatusNotFound, Detail: "there is no such call"})
	})
	c := dial(t, l)
	if err := c.SetWriteDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for err := error(nil); err == nil; {
		if _, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the connection is held")
		}
	}
}

// Nor does the word that a body may come, which net/http sends before a handler writes anything.
func TestAdmit_GivesTheWordToContinueADeadline(t *testing.T) {
	var deadline time.Time
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
	r = r.WithContext(context.WithValue(r.Context(), headKey{}, &headConn{of: newHeads(nil)}))
	w := &deadlineWriter{ResponseRecorder: httptest.NewRecorder(), until: &deadline}
	admit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if left := time.Until(deadline); left <= 0 || left > AnswerGrace {
			t.Errorf("before the body is read it has %v", left)
		}
	})).ServeHTTP(w, r)
}

// deadlineWriter notes the deadline of writes.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	until *time.Time
}

func (w *deadlineWriter) SetWriteDeadline(until time.Time) error {
	*w.until = until
	return nil
}

// A request has as many fields as any caller needs, and no more: net/http keeps each for as long as the request goes on.
func TestAdmit_RefusesTooManyFields(t *testing.T) {
	l := serveHeads(t, func(*heads) {}, func(http.ResponseWriter, *http.Request) {})
	request := func(n int) string {
		return "GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("a:\r\n", n) + "\r\n"
	}
	ask(t, dial(t, l), request(maxFields), http.StatusOK)
	refused := ask(t, dial(t, l), request(maxFields+1), http.StatusRequestHeaderFieldsTooLarge)
	ended(t, refused)
}

// What a request says beyond what its handler reads holds no connection: net/http waits for it before it takes the next one.
func TestServer_WaitsForNoBodyThatNobodyReads(t *testing.T) {
	l := serveHeads(t, func(*heads) {}, func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodPut: // a refusal that is larger than what net/http keeps
			problem.Write(w, problem.Problem{Status: http.StatusBadRequest, Detail: strings.Repeat("x", 64<<10)})
			return
		case http.MethodGet, http.MethodHead:
			_, _ = io.WriteString(w, strings.Repeat("x", 64<<10)) // more than net/http keeps until the handler has returned
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
	})
	for _, request := range []string{
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		ended(t, ask(t, dial(t, l), request, http.StatusUnauthorized))
	}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		ended(t, ask(t, dial(t, l), method+" / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n", http.StatusOK))
	}
	ended(t, ask(t, dial(t, l), "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n", http.StatusBadRequest))
	ended(t, ask(t, dial(t, l), "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", http.StatusBadRequest))
}

// A request for all of the server has a head as every other one.
func TestServer_LooksAtTheHeadBehindOptionsOfAll(t *testing.T) {
	l := serveHeads(t, func(*heads) {}, func(http.ResponseWriter, *http.Request) {})
	c := dial(t, l)
	ask(t, c, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", http.StatusOK)
	ask(t, c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", http.StatusBadRequest)
}

// A head that stops and a connection that is not used again hold nothing for long.
func TestServer_ClosesConnectionsThatStop(t *testing.T) {
	server := NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.ReadHeaderTimeout /= 100
	server.IdleTimeout /= 1000
	if server.ReadHeaderTimeout <= 0 || server.IdleTimeout <= 0 {
		t.Fatal("it waits without an end")
	}
	l := listen(t)
	served := make(chan error, 1)
	go func() { served <- server.Serve(Guard(l)) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	stops := dial(t, l)
	if _, err := io.WriteString(stops, "GET / HTTP/1.1\r\n"); err != nil {
		t.Fatal(err)
	}
	ended(t, stops)
	ended(t, ask(t, dial(t, l), "GET / HTTP/1.1\r\nHost: x\r\n\r\n", http.StatusOK))
}
