package agents

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/tenant"
)

// The caller's headers go on that are named, a key of Skein never does, and the credential is read anew for each call.
func TestCaller_SendsTheHeadersThatItIsToldTo(t *testing.T) {
	var got http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		w.Header().Set("Content-Type", "text/event-stream")
	}))
	defer srv.Close()
	secret := filepath.Join(t.TempDir(), "secret")
	keep := func(text string) {
		if err := os.WriteFile(secret, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	call := func(a Agent, header http.Header) {
		t.Helper()
		a.URL = srv.URL
		a = a.withDefaults()
		c := NewCaller(a)
		defer c.Close()
		body, err := c.Call(t.Context(), []byte("{}"), func() {}, "ac/me", header)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, body)
		_ = body.Close()
	}
	want := func(name string, values ...string) {
		t.Helper()
		if len(got[name]) != len(values) || (len(values) > 0 && got.Get(name) != values[0]) {
			t.Errorf("%s is %q, want %q", name, got[name], values)
		}
	}
	key := tenant.NewKey()
	caller := http.Header{"Authorization": {"Bearer theirs"}, "X-A": {"1", "2"}, "X-B": {"3"}, "Cookie": {"c"},
		"Skein-Authorization": {"Bearer " + key}, DefaultTenantHeader: {"theirs"}, "X-Who": {"theirs"},
		"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		"Tracestate":  {"a=1"}}
	call(Agent{Name: "a", Headers: []string{"x-a", "authorization"}}, caller)
	want("Authorization", "Bearer theirs")
	want("X-A", "1", "2")
	want("X-B")
	want("Cookie")
	want("Skein-Authorization")
	want("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	want("Tracestate")
	want(DefaultTenantHeader, "ac%2Fme")
	call(Agent{Name: "a", TenantHeader: new("x-who")}, caller)
	want("X-Who", "ac%2Fme")
	want(DefaultTenantHeader)
	call(Agent{Name: "a", TenantHeader: new("")}, caller)
	want(DefaultTenantHeader)

	for _, value := range []string{"Bearer " + key, "bearer  " + key, key, "x " + key + " y", "k=" + key + "; a=b", "Basic," + key} {
		call(Agent{Name: "a", Headers: []string{"Authorization", "X-A"}}, http.Header{"Authorization": {value}, "X-A": {value, "fine"},
			"Traceparent": {"none"}})
		want("Traceparent")
		want("Authorization")
		want("X-A", "fine")
	}

	keep("hush\r\n")
	a := Agent{Name: "a", CredentialFile: secret}
	call(a, caller)
	want("Authorization", "Bearer hush")
	keep("other")
	call(a, caller)
	want("Authorization", "Bearer other")
	a.CredentialHeader = "X-Key"
	call(a, caller)
	want("X-Key", "other")
	want("Authorization")
}

func TestAgent_ACredentialIsOneLine(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	for text, want := range map[string]bool{"x": true, "x\n": true, "x y\r\n": true, "": false, "\n": false, "a\nb": false, "a\x00": false} {
		if err := os.WriteFile(secret, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := (Agent{CredentialFile: secret}).credential(); (err == nil) != want {
			t.Errorf("%q gives %v", text, err)
		}
	}
}

// What a caller is told, and what the log gets as a cause, has neither the agent's own text nor its URL.
func TestCaller_ErrorsSayNothingThatTheAgentOrItsURLSays(t *testing.T) {
	answering := func(answer string) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			_, _ = io.WriteString(c, answer)
			_ = c.Close()
		}))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	const rest = "\r\nContent-Length: 0\r\n\r\n"
	for name, c := range map[string]struct{ url, code, text string }{
		"a phrase of its own":  {answering("HTTP/1.1 500 hush hush" + rest), CodeStatus, "the agent answered 500 Internal Server Error"},
		"a status of its own":  {answering("HTTP/1.1 599 hush" + rest), CodeStatus, "the agent answered 599"},
		"200 of its own":       {answering("HTTP/1.1 200 hush" + rest), CodeNotSSE, `the agent answered 200 OK with "", not with text/event-stream`},
		"a redirect":           {answering("HTTP/1.1 302 hush\r\nLocation: /hush" + rest), CodeRedirect, "the agent answered 302 Found: redirects are not followed, the agent's URL must be its last one"},
		"nothing has changed":  {answering("HTTP/1.1 304 hush\r\n\r\n"), CodeStatus, "the agent answered 304 Not Modified"},
		"no connection":        {"http://127.0.0.1:1", CodeUnreachable, "the agent cannot be reached"},
		"an end before it all": {answering(""), CodeUnreachable, "the agent cannot be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			caller := NewCaller(Agent{Name: "a", URL: c.url + "/?token=hush"}.withDefaults())
			defer caller.Close()
			body, err := caller.Call(t.Context(), []byte("{}"), func() {}, "acme", nil)
			if err == nil {
				_ = body.Close()
				t.Fatal("there is no error")
			}
			var e *Error
			if !errors.As(err, &e) || e.Code != c.code || e.Text != c.text {
				t.Errorf("the error is %#v", err)
			}
			for ; err != nil; err = errors.Unwrap(err) {
				if strings.Contains(err.Error(), "hush") {
					t.Errorf("it says %v", err)
				}
			}
		})
	}
}

// A timeout covers an agent that takes the connection and reads nothing.
func TestCaller_GivesUpOnAnAgentThatReadsNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	a := Agent{Name: "a", URL: "http://" + l.Addr().String(), ConnectTimeout: 100 * time.Millisecond, AnswerTimeout: 200 * time.Millisecond}
	c := NewCaller(a.withDefaults())
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	sent := make(chan struct{})
	_, err = c.Call(ctx, bytes.Repeat([]byte("x"), 32<<20), func() { close(sent) }, "acme", nil)
	var failed *Error
	if !errors.As(err, &failed) || failed.Code != CodeTimeout || ctx.Err() != nil {
		t.Errorf("got %v, %v", err, ctx.Err())
	}
	<-sent
}

// keepAlive is an agent that answers the first request of each connection with head and closes it at the next one. It
// returns its address, and how many requests have come.
func keepAlive(t *testing.T, head, second string) (url string, requests *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	requests = new(atomic.Int32)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				from := bufio.NewReader(c)
				for _, answer := range []string{head, second} {
					r, err := http.ReadRequest(from)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					requests.Add(1)
					_, _ = io.WriteString(c, answer)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String(), requests
}

const emptyStream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 0\r\n\r\n"

// A server may close an idle connection at the moment at which the next request is sent on it.
func TestCaller_SendsAgainWhereTheAgentClosedTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		second   string // the answer to the second request of a connection
		calls    int
		failed   int
		requests int32
	}{
		"no byte":                    {"", 6, 0, 9},
		"a byte":                     {"H", 4, 2, 4}, // the agent has begun to answer: it is not called again
		"an answer, as it should be": {emptyStream, 2, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			url, requests := keepAlive(t, emptyStream, c.second)
			caller := NewCaller(Agent{Name: "a", URL: url}.withDefaults())
			defer caller.Close()
			failed := 0
			for range c.calls {
				body, err := caller.Call(t.Context(), []byte(`{"x":1}`), func() {}, "acme", nil)
				if err != nil {
					failed++
					continue
				}
				_, _ = io.Copy(io.Discard, body)
				_ = body.Close()
			}
			if failed != c.failed || requests.Load() != c.requests {
				t.Errorf("%d of %d failed, %d requests came", failed, c.calls, requests.Load())
			}
		})
	}
}

// An agent that never answers on a fresh connection is called once.
func TestCaller_SendsOnceOnAFreshConnection(t *testing.T) {
	url, requests := keepAlive(t, "", "")
	caller := NewCaller(Agent{Name: "a", URL: url}.withDefaults())
	defer caller.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := caller.Call(ctx, []byte("{}"), func() {}, "acme", nil); err == nil || requests.Load() != 1 {
		t.Errorf("%v after %d requests", err, requests.Load())
	}
}

// An error has the beginning of the agent's answer, as the official client's has it, but never the agent's secret.
func TestCaller_SaysWhatTheAgentAnswered(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(`hu"sh/é`), 0o600); err != nil {
		t.Fatal(err)
	}
	header := http.Header{"Authorization": {"Basic dXNlcjpwYXNzd29yZA=="}, "Cookie": {"a=1; sid=a-cookie"}, "X-Retry": {"true"}}
	for name, c := range map[string]struct {
		status       int
		header, body string
		want         string
	}{
		"JSON":        {422, "Content-Type: application/json", "{\"detail\": [\n{\"msg\": \"Field required\"}]}\n", `HTTP 422: {"detail":[{"msg":"Field required"}]}`},
		"Retry-After": {429, "Retry-After: 7", "slow down", "HTTP 429: slow down (Retry-After: 7)"},
		"nothing":     {503, "", "", "the agent answered 503 Service Unavailable"},
		"a date":      {503, "Retry-After: Sat, 28 Nov 2026 12:00:00 GMT", "<html>\n", "HTTP 503: <html> (Retry-After: Sat, 28 Nov 2026 12:00:00 GMT)"},
		"a secret":    {401, "Retry-After: hu\"sh/é", "no key hu\"sh/é here", "HTTP 401: no key … here (Retry-After: …)"},
		"in JSON":     {401, "", `{"detail": "no key hu\"sh\/\u00E9", "more": "{\"key\":\"hu\\\"sh/é\"}"}`, `HTTP 401: {"detail":"no key …","more":"{\"key\":\"…\"}"}`},
		"in HTML":     {401, "", "no key hu&#34;sh/&#xE9;, or hu%22sh%2F%C3%a9", "HTTP 401: no key …, or …"},
		"the URL":     {404, "", "no POST /this/run/me?key=query+value here (query value; query%20value)", "HTTP 404: no POST … here (…; …)"},
		"the host":    {502, "", "no ROUTE to 127.0.0.1, LOCALHOST or /THIS/RUN/ME", "HTTP 502: no ROUTE to …, LOCALHOST or …"},
		"words":       {404, "", `{"this run":true,"me":false}`, `HTTP 404: {"this run":true,"me":false}`},
		"headers": {403, "", "Basic dXNlcjpwYXNzd29yZA==, or user with password: not in session of sid=a-cookie or 1",
			"HTTP 403: …, or … with …: not in session of … or 1"},
		"a type":     {200, "Content-Type: text/a-cookie", "", `the agent answered 200 OK with "text/…", not with text/event-stream`},
		"a redirect": {307, "Location: /x", "no key", "the agent answered 307 Temporary Redirect: redirects are not followed, the agent's URL must be its last one"},
		"much":       {500, "", strings.Repeat("ä", 4000), "HTTP 500: " + strings.Repeat("ä", 512) + "…"},
		"cut":        {500, "", "x" + strings.Repeat("ä", 4000), "HTTP 500: x" + strings.Repeat("ä", 511) + "…"},
		"no UTF-8":   {500, "", "a\xffb", "HTTP 500: a\uFFFDb"},
		"no SSE":     {200, "Content-Type: application/json", `{"error": 1}`, `the agent answered 200 OK with "application/json", not with text/event-stream: {"error":1}`},
		"compressed": {500, "Content-Encoding: gzip", "\x1f\x8b", "the agent answered 500 Internal Server Error"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if name, value, ok := strings.Cut(c.header, ": "); ok {
					w.Header().Set(name, value)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			defer srv.Close()
			caller := NewCaller(Agent{Name: "a", URL: srv.URL + "/this/run/me?key=query+value", CredentialFile: secret, CredentialHeader: "X-Key",
				Headers: []string{"Authorization", "Cookie", "X-Retry"}}.withDefaults())
			defer caller.Close()
			if _, err := caller.Call(t.Context(), []byte("{}"), func() {}, "acme", header); err == nil || err.Error() != c.want {
				t.Errorf("the error is %q, want %q", err, c.want)
			}
		})
	}
}
