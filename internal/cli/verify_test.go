package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/skeinhq/skein/internal/app"
)

// A thread that is erased between the listing and its turn costs verify --all that thread alone; one that was named
// is an error.
func TestVerify_GoesOnWhereAThreadWasErasedInTheMeantime(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body string
		switch r.URL.Path {
		case "/v1/threads":
			body = `{"threads":[{"threadId":"a","runs":1},{"threadId":"gone","runs":2},{"threadId":"z","runs":1}]}`
		case "/v1/threads/gone":
			body = `{"threadId":"gone","runs":2}`
		case "/v1/threads/a/verify", "/v1/threads/z/verify":
			w.Header().Set("Content-Type", "application/x-ndjson")
			body = `{"threadId":"a","runId":"r","verdict":"proved","record":{"events":1,"sha256":"00"}}` + "\n"
		default:
			w.WriteHeader(http.StatusNotFound)
			body = `{"error":{"code":"not-found","message":"there is no such thread"}}`
		}
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	stdout, stderr, code := skein(t, "", "verify", "--all", "--url", server.URL)
	got := fmt.Sprintf("%d %s%s", code, stdout, stderr)
	if want := "0 2 runs: 2 proved, 0 differ, 0 not proved\nthread gone was erased in the meantime\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if stdout, _, code := skein(t, "", "verify", "gone", "--url", server.URL); code != app.ExitNotFound || stdout != "" {
		t.Errorf("of one that was named: exit %d, %q", code, stdout)
	}
}
