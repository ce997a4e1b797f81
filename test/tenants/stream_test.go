package tenants

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/test/site"
)

// streamAsOthers follows what is acme's with keys of other tenants. To them it is not there, so that they wait for it, or are given
// nothing; and its positions are nobody's.
func (s *tenants) streamAsOthers(st stage, r front.Route) {
	t := s.t
	given := func(what string, got reply) {
		t.Helper()
		if got.status != http.StatusOK || got.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("%s: the answer is %s", what, got)
		}
	}
	for _, run := range []string{"r1", "r2"} {
		path := s.path(r, "t1", run)
		// A stream is read for a moment, in which a busy machine may send nothing yet.
		site.Eventually(s.t, "what is acme's is answered as what is nowhere", func() (string, bool) {
			got := s.call(st, r.Method, path, s.as("stranger"))
			quiet(t, "a stranger", got)
			given("a stranger", got)
			nowhere := s.call(st, r.Method, s.path(r, "nowhere", "nothing"), s.as("stranger"))
			return fmt.Sprintf("%s and %s", got, nowhere), nowhere.String() == got.String()
		})
		refused(t, "naming a tenant", s.call(st, r.Method, path+"?tenant=acme", s.as("stranger")), http.StatusBadRequest)
		quiet(t, "umbrella", s.call(st, r.Method, path, s.as("umbrella")))

		var own reply
		site.Eventually(s.t, "acme itself gets what others do not", func() (string, bool) {
			own = s.call(st, r.Method, path, s.as("acme"))
			given("acme itself", own)
			return own.String(), strings.Contains(own.body, secretOfAcme)
		})
		if r.Method != http.MethodGet {
			continue
		}
		position := ""
		for line := range strings.Lines(own.body) {
			if id, ok := strings.CutPrefix(line, "id: "); ok {
				position = strings.TrimSpace(id)
			}
		}
		for _, who := range []string{"stranger", "umbrella"} {
			header := s.as(who)
			header.Set("Last-Event-ID", position)
			refused(t, who+" with acme's "+position, s.call(st, r.Method, path, header), http.StatusBadRequest)
			refused(t, who+" with acme's position as a parameter", s.call(st, r.Method, path+"?lastEventId="+position, s.as(who)),
				http.StatusBadRequest)
		}
		for _, way := range []string{"acme%2Ft1", "..%2Facme%2Ft1", "t1%00", "acme%252Ft1"} {
			quiet(t, way, s.call(st, r.Method, s.path(r, way, run), s.as("stranger")))
		}
	}
}
