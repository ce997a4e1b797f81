package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/app"
)

// Verify --all is one call. What the server says of how far it is goes to stderr, and is no part of --json.
func TestVerify_AllIsOneCall(t *testing.T) {
	const proved = `{"threadId":"a","runId":"r","verdict":"proved","record":{"events":1,"sha256":"00"}}`
	const differs = `{"threadId":"b","runId":"r","verdict":"differs","record":{"events":1,"sha256":"00"},"differences":["state"],"differsFrom":"0:1"}`
	broken := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/verify" {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"status":404,"detail":"there is no such thread"}`)
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, `{"progress":{"done":0,"total":1000}}`+"\n"+proved+"\n"+`{"progress":{"done":1000,"total":1000}}`+"\n")
		if broken {
			_ = http.NewResponseController(w).Flush() // of a test's server: it flushes
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, differs+"\n")
	}))
	defer server.Close()
	stdout, stderr, code := skein(t, "", "verify", "--all", "--url", server.URL)
	if code != app.ExitDiffers || !strings.HasPrefix(stdout, "thread b, run r: differs at 0:1 or later, in state\n") ||
		!strings.HasSuffix(stdout, "\n2 runs: 1 proved, 1 differ, 0 not proved\n") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	if stdout, _, code := skein(t, "", "verify", "--all", "--json", "--url", server.URL); code != app.ExitDiffers ||
		stdout != proved+"\n"+differs+"\n" {
		t.Errorf("as JSON: exit %d, %q", code, stdout)
	}
	if stdout, _, code := skein(t, "", "verify", "gone", "--url", server.URL); code != app.ExitNotFound || stdout != "" {
		t.Errorf("of one that was named: exit %d, %q", code, stdout)
	}
	broken = true
	if stdout, stderr, code := skein(t, "", "verify", "--all", "--url", server.URL); code != app.ExitFailed || stdout != "" ||
		!strings.Contains(stderr, "broken off") {
		t.Errorf("where the answer is broken off: exit %d, %q, %q", code, stdout, stderr)
	}
}
