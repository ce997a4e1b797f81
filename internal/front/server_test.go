package front

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// serve serves a handler, over HTTP/2 with TLS or over HTTP/1.1 without.
func serve(t *testing.T, http2 bool, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.Config, s.EnableHTTP2 = NewServer(handler), http2
	if http2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func eachProtocol(t *testing.T, f func(t *testing.T, http2 bool)) {
	t.Helper()
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) { f(t, http2) })
	}
}

func request(t *testing.T, s *httptest.Server, method string, body io.Reader) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if s.EnableHTTP2 != (resp.ProtoMajor == 2) {
		t.Fatalf("the answer is %s", resp.Proto)
	}
	t.Cleanup(func() { _ = resp.Body.Close() }) // it may be cut
	return resp
}

func stalling(w http.ResponseWriter, stall time.Duration) *Writer {
	out := NewWriter(w)
	out.stall = stall
	return out
}

// A deadline is that of one write: a stream may say nothing for longer.
func TestWriter_LetsAStreamBeSilent(t *testing.T) {
	eachProtocol(t, func(t *testing.T, http2 bool) {
		const stall = 100 * time.Millisecond
		s := serve(t, http2, func(w http.ResponseWriter, _ *http.Request) {
			w = stalling(w, stall)
			for range 3 {
				_, _ = io.WriteString(w, "x")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(3 * stall)
			}
		})
		resp := request(t, s, http.MethodGet, nil) //nolint:bodyclose // request closes it
		if b, err := io.ReadAll(resp.Body); string(b) != "xxx" || err != nil {
			t.Errorf("the answer is %q, %v", b, err)
		}
	})
}

func TestWriter_CutsOffWhoReadsNothing(t *testing.T) {
	eachProtocol(t, func(t *testing.T, http2 bool) {
		ended := make(chan struct{}, 1)
		s := serve(t, http2, func(w http.ResponseWriter, _ *http.Request) {
			w = stalling(w, 100*time.Millisecond)
			for part := make([]byte, 1<<20); ; {
				if _, err := w.Write(part); err != nil {
					ended <- struct{}{}
					return
				}
			}
		})
		request(t, s, http.MethodGet, nil) //nolint:bodyclose // request closes it
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			t.Error("it writes on")
		}
	})
}

// What a request sends beyond what its handler reads holds no connection: net/http waits for it before it takes the next one.
func TestServer_WaitsForNoBodyThatNobodyReads(t *testing.T) {
	s := serve(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, strings.Repeat("x", 64<<10)) // more than net/http keeps until the handler has returned
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
	})
	for _, head := range []string{"POST / HTTP/1.1\r\nContent-Length: 10\r\n", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
		"GET / HTTP/1.1\r\nContent-Length: 10\r\n"} {
		c := raw(t, s, head+"Host: x\r\n\r\n")
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q holds its connection", head)
		}
	}
}

func TestServer_RefusesLongHeaders(t *testing.T) {
	s := serve(t, false, func(http.ResponseWriter, *http.Request) {})
	for n, want := range map[int]int{headerBytes - 100: http.StatusOK, headerBytes + 8<<10: http.StatusRequestHeaderFieldsTooLarge} {
		resp, err := http.ReadResponse(bufio.NewReader(raw(t, s,
			fmt.Sprintf("GET / HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", strings.Repeat("x", n)))), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("headers of %d bytes: %s", n, resp.Status)
		}
	}
}

// raw sends a text, and has the answer end within 20 s.
func raw(t *testing.T, s *httptest.Server, text string) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second)) // TCP takes it
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}
