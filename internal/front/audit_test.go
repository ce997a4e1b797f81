package front

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func openLog(t *testing.T, path string, stdout *bytes.Buffer) *AuditLog {
	t.Helper()
	l, err := OpenAuditLog(path, "ingest", stdout, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func lines(t *testing.T, text string) (entries []Entry) {
	t.Helper()
	for line := range strings.Lines(text) {
		var e Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q is no line: %v", line, err)
		}
		entries = append(entries, e)
	}
	return entries
}

func TestAudited_WritesALineForEachRequestOfARoute(t *testing.T) {
	var out, logged bytes.Buffer
	h := Audited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := &lineOf(r.Context()).Entry
		e.Action, e.Route, e.Tenant, e.Subject, e.Thread = "erase", "DELETE /v1/threads/{thread}", "acme", "agents", "chat"
		switch r.URL.Path {
		case "/begun":
			if err := (&Call{line: lineOf(r.Context())}).Announce(); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusAccepted)
		case "/denied":
			w.WriteHeader(http.StatusForbidden)
		case "/refused":
			w.WriteHeader(http.StatusNotFound)
		case "/failed":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/cut":
			panic(http.ErrAbortHandler)
		case "/no route":
			e.Action = ""
			w.WriteHeader(http.StatusNotFound)
		}
	}), "ingest", openLog(t, "-", &out), slog.New(slog.NewTextHandler(&logged, nil)))
	for _, path := range []string{"/done", "/begun", "/denied", "/refused", "/failed", "/cut", "/no route"} {
		func() {
			defer func() {
				if v := recover(); (v != nil) != (path == "/cut") {
					t.Errorf("%s panics with %v", path, v)
				}
			}()
			r := httptest.NewRequest(http.MethodDelete, "http://x"+strings.ReplaceAll(path, " ", "%20"), strings.NewReader("a secret"))
			r.RemoteAddr = "192.0.2.7:4711"
			h.ServeHTTP(httptest.NewRecorder(), r)
		}()
	}
	var got []string
	for _, e := range lines(t, out.String()) {
		if e.Stage != "ingest" || e.Tenant != "acme" || e.Subject != "agents" || e.Thread != "chat" || e.From != "192.0.2.7" || e.Time.IsZero() {
			t.Errorf("a line is %+v", e)
		}
		got = append(got, e.Result)
	}
	if want := "done begun done denied refused failed cut"; strings.Join(got, " ") != want {
		t.Errorf("the results are %v, want %s", got, want)
	}
	if n := strings.Count(logged.String(), "msg=request"); n != 7 || strings.Contains(logged.String()+out.String(), "a secret") {
		t.Errorf("the access log has %d lines: %s", n, logged.String())
	}
}

type noWriter struct{}

func (noWriter) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestAuditLog_SaysThatALineIsLost(t *testing.T) {
	l, err := OpenAuditLog("-", "query", noWriter{}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	h := Audited(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		lineOf(r.Context()).Action = "read"
		if err := (&Call{line: lineOf(r.Context())}).Announce(); err == nil {
			t.Error("a line that was not written is no error")
		}
	}), "query", l, nil)
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	if err := l.Ready(); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("readiness is %v", err)
	}
	if err := (&Call{line: new(line)}).Announce(); err != nil {
		t.Errorf("without a log: %v", err)
	}
}

func TestAuditLog_FollowsAFileThatIsRotated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	synctest.Test(t, func(t *testing.T) {
		l := openLog(t, path, nil)
		h := Audited(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { lineOf(r.Context()).Action = "read" }), "query", l, nil)
		ask := func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)) }
		ask()
		if err := os.Rename(path, path+".1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // of the bubble
		ask()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, file := range []string{path, path + ".1"} {
		text, err := os.ReadFile(file)
		if err != nil || len(lines(t, string(text))) != 1 {
			t.Errorf("%s holds %q, %v", file, text, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
}
