package front

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/trace"
	"github.com/skeinhq/skein/internal/trace/tracetest"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/tenant"
)

// byHeader takes the tenant from a header.
type byHeader struct{}

func (byHeader) Authenticate(r *http.Request) (tenant.Identity, error) {
	switch name := r.Header.Get("Tenant"); name {
	case "":
		return tenant.Identity{}, tenant.ErrUnauthenticated
	case "unknown":
		return tenant.Identity{}, errors.New("the key store is away")
	case "writer":
		return tenant.Identity{Tenant: name, Scopes: []tenant.Scope{tenant.ScopePublish}}, nil
	default:
		return tenant.Identity{Tenant: name, Scopes: []tenant.Scope{tenant.ScopeRead}}, nil
	}
}

// Each request gets to its route or a problem, has its line in the audit log if a route took it, and is counted.
func TestFront_AnswersOrSaysWhyNot(t *testing.T) {
	var out bytes.Buffer
	log, err := OpenAuditLog("-", "query", &out, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	counted, draining := 0, false
	f := &Front{
		Routes: []Route{
			{Method: http.MethodGet, Pattern: "/v1/threads/{thread}/runs/{run}", Scope: tenant.ScopeRead, Action: "read", Kind: quota.Reads,
				Params: []string{"limit", "label"}, Repeat: "label", Serve: func(c *Call) error {
					switch {
					case c.Query.Has("limit"):
						return errors.New("the store is away")
					case c.R.Method == http.MethodHead || c.R.PathValue("thread") == "a/b" && c.R.PathValue("run") == "..r":
						c.Send(http.StatusOK, "text/plain", []byte("yes"))
						return nil
					}
					return Refuse(http.StatusConflict, "reason", "no")
				}},
			{Method: http.MethodPost, Pattern: "/v1/agents/{agent}", Scope: tenant.ScopePublish, Action: "agent",
				Serve: func(*Call) error { return nil }},
			{Method: http.MethodGet, Pattern: "/", Serve: func(c *Call) error { c.W.WriteHeader(http.StatusOK); return nil }},
		},
		Auth: byHeader{}, Quotas: quota.Unlimited(),
		Draining: func() error {
			if draining {
				return Refuse(http.StatusServiceUnavailable, "", "stopping")
			}
			return nil
		},
		Explain: func(_ *Call, err error) *Problem { return Refuse(http.StatusServiceUnavailable, "", "%v", err) },
		Done:    func(*Call, *Problem, time.Duration) { counted++ },
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", tracetest.Start(t).URL)
	if f.Tracer, err = trace.New(t.Context(), "skein-query", "1", slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Tracer.Close() }()
	h := Audited(f, "query", log, nil)
	const run, line = "/v1/threads/a%2Fb/runs/..r", `"action":"read","route":"GET /v1/threads/{thread}/runs/{run}"`
	for name, c := range map[string]struct {
		method, path, tenant string
		status               int
		audited, allow       string
	}{
		"an answer":                  {"GET", run, "acme", 200, line + `,"tenant":"acme","threadId":"a/b","runId":"..r","from":"192.0.2.1","status":200,"result":"done"`, ""},
		"an answer's head":           {"HEAD", run, "acme", 200, `"route":"HEAD /v1/threads/{thread}/runs/{run}"`, ""},
		"a refusal":                  {"GET", "/v1/threads/t/runs/r", "acme", 409, `"status":409,"result":"refused"`, ""},
		"an error":                   {"GET", run + "?limit=1", "acme", 503, `"status":503,"result":"failed"`, ""},
		"a parameter that may come":  {"GET", run + "?label=a&label=b", "acme", 200, line, ""},
		"a parameter twice":          {"GET", run + "?limit=1&limit=1", "acme", 400, line, ""},
		"an unknown parameter":       {"GET", run + "?nonsense=1", "acme", 400, line, ""},
		"a query with a bad escape":  {"GET", run + "?%zz", "acme", 400, line, ""},
		"no credentials":             {"GET", run, "", 401, line + `,"threadId":"a/b","runId":"..r","from":"192.0.2.1","status":401,"result":"denied"`, ""},
		"the wrong scope":            {"GET", run, "writer", 403, `"tenant":"writer","threadId":"a/b","runId":"..r","from":"192.0.2.1","status":403,"result":"denied"`, ""},
		"credentials of weather":     {"GET", run, "unknown", 503, line, ""},
		"another method":             {"POST", run, "acme", 405, "", "GET, HEAD"},
		"another method of an agent": {"GET", "/v1/agents/x?y=1", "writer", 405, "", "POST"},
		"a path that is not there":   {"GET", "/v1/threads/t/runs/r/x", "acme", 404, "", ""},
		"an empty id":                {"GET", "/v1/threads//runs/r", "acme", 400, line, ""},
		"two dots as an id":          {"GET", "/v1/threads/%2e%2E/runs/r", "acme", 400, line, ""},
		"a long id":                  {"GET", "/v1/threads/t/runs/" + strings.Repeat("x", 513), "acme", 400, line, ""},
		"a call that reads no query": {"POST", "/v1/agents/x?y=1", "writer", 200, `"action":"agent"`, ""},
		"a page":                     {"GET", "/", "", 200, "", ""},
	} {
		out.Reset()
		before := counted
		r := httptest.NewRequest(c.method, c.path, nil)
		r.Header.Set("Tenant", c.tenant)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status || w.Header().Get("Allow") != c.allow || (w.Code == http.StatusUnauthorized) != (w.Header().Get("WWW-Authenticate") != "") {
			t.Errorf("%s: %d %v %s", name, w.Code, w.Header(), w.Body)
		}
		if (counted == before) != (c.status == 404 || c.status == 405) {
			t.Errorf("%s is counted %d times", name, counted-before)
		}
		known := c.tenant != "" && c.tenant != "unknown" && c.status != 404 && c.status != 405
		if traced := r.Header.Get("traceparent") != ""; traced != known {
			t.Errorf("%s: it has a span: %t, want %t", name, traced, known)
		}
		if !strings.Contains(out.String(), c.audited) || (out.Len() == 0) != (c.audited == "") {
			t.Errorf("%s: the audit log has %q, want %s", name, out.String(), c.audited)
		}
	}
	draining = true
	w := httptest.NewRecorder()
	if f.ServeHTTP(w, httptest.NewRequest(http.MethodGet, run, nil)); w.Code != http.StatusServiceUnavailable ||
		w.Header().Get("Connection") != "close" {
		t.Errorf("while it drains: %d %v", w.Code, w.Header())
	}
}

// expiring has credentials that expire after a second.
type expiring struct{ asked atomic.Bool }

func (e *expiring) Authenticate(*http.Request) (tenant.Identity, error) {
	if e.asked.Swap(true) {
		return tenant.Identity{}, tenant.ErrExpired
	}
	return tenant.Identity{Tenant: "acme", Scopes: []tenant.Scope{tenant.ScopePublish}, Expires: time.Now().Add(time.Second)}, nil
}

// A revocation ends a body, and must reach no later request of the connection.
func TestFront_LeavesNoDeadlineToTheNextRequest(t *testing.T) {
	again := make(chan error, 1)
	f := &Front{
		Quotas: quota.Unlimited(), Done: func(*Call, *Problem, time.Duration) {},
		Routes: []Route{
			{Method: http.MethodGet, Pattern: "/next", Serve: func(c *Call) error {
				again <- c.R.Context().Err()
				return nil
			}},
			{Method: http.MethodPost, Pattern: "/", Scope: tenant.ScopePublish, Serve: func(c *Call) error {
				ended := make(chan struct{})
				defer tenant.OnRevoked(c.R.Context(), func() { close(ended) })()
				_, err := io.ReadAll(c.R.Body)
				<-ended
				_, _ = fmt.Fprint(c.W, err) // it is read
				return nil
			}},
		},
	}
	srv := serve(t, false, f.ServeHTTP)
	for name, c := range map[string]struct{ body, want string }{
		"a body that goes on":     {"7\r\n{\"type\"\r\n", os.ErrDeadlineExceeded.Error()},
		"a body that was read":    {"1\r\nx\r\n0\r\n\r\n", "<nil>"},
		"a body that ends behind": {"1\r\nx\r\n", os.ErrDeadlineExceeded.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			f.Auth = &expiring{}
			conn := raw(t, srv, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"+c.body)
			in := bufio.NewReader(conn)
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(resp.Body) // where the connection is closed, it lacks its end
			_ = resp.Body.Close()
			if !strings.HasSuffix(string(text), c.want) {
				t.Errorf("answer is %q, want %q", text, c.want)
			}
			_, err = io.WriteString(conn, "GET /next HTTP/1.1\r\nHost: x\r\n\r\n")
			if c.want != "<nil>" {
				if _, err := in.ReadByte(); err == nil {
					t.Error("the connection takes another request behind a body that was cut")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if resp, err = http.ReadResponse(in, nil); err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if err := <-again; err != nil {
				t.Errorf("the next request's context is %v", err)
			}
		})
	}
}

func TestValidateURL_RefusesWhatNoAnswerMayName(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, "https://a:1/b": true, "http://a": true, "a:1": false, "ftp://a": false, "https://u:hush@a": false, "%": false,
	} {
		if err := ValidateURL("query-url", text); (err == nil) != want || err != nil && strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
