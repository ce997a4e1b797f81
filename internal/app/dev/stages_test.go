package dev

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/ingest"
	"github.com/skeinhq/skein/pkg/query"
)

// A request at the wrong one of the two HTTP stages is refused by the stage's name, whichever route it is for.
func TestStages_RefuseWhatTheOtherOneServes(t *testing.T) {
	serve(t, config(t.TempDir()), func(s *Server, _ *client.Client) {
		for stage, at := range map[string]struct {
			wrong  http.Handler
			other  string
			routes []front.Route
		}{
			front.StageIngest: {s.query.Handler(), front.StageQuery, ingest.Routes()},
			front.StageQuery:  {s.ingest.Handler(), front.StageIngest, query.Routes()},
		} {
			for _, r := range at.routes {
				for _, method := range r.Methods() {
					path := strings.NewReplacer("{", "", "}", "").Replace(r.Pattern)
					w := httptest.NewRecorder()
					at.wrong.ServeHTTP(w, httptest.NewRequest(method, path, nil))
					var p struct{ Stage, ServedBy, Reason, Detail string }
					err := json.Unmarshal(w.Body.Bytes(), &p)
					if err != nil || w.Code != http.StatusMisdirectedRequest || p.Stage != at.other || p.ServedBy != stage || p.Reason != "other-stage" ||
						!strings.HasPrefix(p.Detail, "this is the "+at.other+" stage: send this request to the "+stage+" stage") {
						t.Errorf("%s %s at %s: %d %s", method, path, at.other, w.Code, w.Body)
					}
				}
			}
		}
	})
}
