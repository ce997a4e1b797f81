package front

import (
	"net/http/httptest"
	"testing"
	"time"
)

func TestWriteProblem_IsAProblemDocument(t *testing.T) {
	for name, tc := range map[string]struct {
		p      Problem
		status int
		body   string
	}{
		"a status alone": {Problem{Status: 404}, 404, `{"status":404,"title":"Not Found"}`},
		"a line": {Problem{Status: 400, Reason: "not-json", Detail: "<not> JSON & more", Line: 3, Members: map[string]any{"accepted": 2}},
			400, `{"accepted":2,"detail":"line 3: <not> JSON & more","line":3,"reason":"not-json","status":400,"title":"Bad Request"}`},
		"a limit": {Problem{Status: 429, Limit: "memory"}, 429,
			`{"limit":"memory","status":429,"title":"Too Many Requests","type":"https://iana.org/assignments/http-problem-types#quota-exceeded","violated-policies":["memory"]}`},
		"a member that is not JSON": {Problem{Status: 400, Members: map[string]any{"f": func() {}}},
			500, `{"detail":"json: unsupported type: func()","status":500,"title":"Internal Server Error"}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			tc.p.Retry = 1500 * time.Millisecond
			WriteProblem(w, &tc.p)
			if w.Code != tc.status || w.Body.String() != tc.body+"\n" {
				t.Errorf("answer is %d %s, want %d %s", w.Code, w.Body, tc.status, tc.body)
			}
			if h := w.Result().Header; h.Get("Content-Type") != "application/problem+json" || h.Get("Retry-After") != "2" {
				t.Errorf("headers are %v", h)
			}
		})
	}
}
