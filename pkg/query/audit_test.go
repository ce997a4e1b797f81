package query

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/front"
)

// Who read and exported what is in the audit log, and who was not let in.
func TestHandler_TellsTheAuditLog(t *testing.T) {
	f := newRawFixture(t)
	f.indexed("run", "", f.event("run", fmt.Sprintf(started, "run")), f.event("run", fmt.Sprintf(finished, "run")))
	var out bytes.Buffer
	log, err := front.OpenAuditLog("-", "query", &out, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	h := front.Audited(f.service.Handler(), "query", log, nil)
	for _, c := range []struct{ tenant, path, want string }{
		{"acme", "/v1/threads/chat/history", `"action":"read","route":"GET /v1/threads/{thread}/history","tenant":"acme","threadId":"chat","from":"192.0.2.1","status":200,"result":"done"`},
		{"acme", "/v1/threads/chat/runs/run/export", `"action":"export","route":"GET /v1/threads/{thread}/runs/{run}/export","tenant":"acme","threadId":"chat","runId":"run","from":"192.0.2.1","status":200,"result":"done"`},
		{"writer", "/v1/threads/chat/history", `"tenant":"writer","threadId":"chat","from":"192.0.2.1","status":403,"result":"denied"`},
		{"", "/v1/threads/chat/history", `"route":"GET /v1/threads/{thread}/history","threadId":"chat","from":"192.0.2.1","status":401,"result":"denied"`},
		{"umbrella", "/v1/threads/chat/history", `"tenant":"umbrella","threadId":"chat","from":"192.0.2.1","status":404,"result":"refused"`},
	} {
		out.Reset()
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		r.Header.Set("Tenant", c.tenant)
		h.ServeHTTP(httptest.NewRecorder(), r)
		if !strings.Contains(out.String(), c.want) || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("the audit log has %swant a line with %s", out.String(), c.want)
		}
	}
}
