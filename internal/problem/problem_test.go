package problem_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/skeinhq/skein/internal/problem"
)

func TestWrite_IsAProblemDocument(t *testing.T) {
	for name, tc := range map[string]struct {
		p      problem.Problem
		status int
		body   string
	}{
		"a status alone": {problem.Problem{Status: 404}, 404, `{"status":404,"title":"Not Found"}`},
		"everything": {problem.Problem{Status: 400, Title: "Bad Line", Detail: "line 3: <not> JSON & more", Extensions: map[string]any{"line": 3, "accepted": 2}},
			400, `{"status":400,"title":"Bad Line","detail":"line 3: <not> JSON & more","accepted":2,"line":3}`},
		"a type": {problem.Problem{Type: "https://example.org/quota", Status: 429}, 429, `{"type":"https://example.org/quota","status":429,"title":"Too Many Requests"}`},
		"an extension that is none": {problem.Problem{Status: 400, Extensions: map[string]any{"status": 200}},
			500, `{"status":500,"title":"Internal Server Error","detail":"encoding problem: \"status\" is not an extension"}`},
		"an extension that is not JSON": {problem.Problem{Status: 400, Extensions: map[string]any{"f": func() {}}},
			500, `{"status":500,"title":"Internal Server Error","detail":"encoding problem member f: json: unsupported type: func()"}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			w.Header().Set("Retry-After", "5")
			problem.Write(w, tc.p)
			if w.Code != tc.status || w.Body.String() != tc.body+"\n" {
				t.Errorf("answer is %d %s, want %d %s", w.Code, w.Body, tc.status, tc.body)
			}
			h := w.Result().Header
			if h.Get("Content-Type") != "application/problem+json" || h.Get("Retry-After") != "5" {
				t.Errorf("headers are %v", h)
			}
		})
	}
}

func TestWrite_TitleFollowsTheStatus(t *testing.T) {
	w := httptest.NewRecorder()
	problem.Write(w, problem.Problem{Status: http.StatusTooEarly})
	if want := `{"status":425,"title":"Too Early"}` + "\n"; w.Body.String() != want {
		t.Errorf("answer is %s, want %s", w.Body, want)
	}
}
