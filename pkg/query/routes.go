package query

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/skeinhq/skein/internal/audit"
	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/internal/problem"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/tenant"
	"github.com/skeinhq/skein/schemas"
	"github.com/skeinhq/skein/web"
)

// route is one call of the API; all but some of liveRoutes are GET.
type route struct {
	pattern string // as in net/http and in OpenAPI
	params  []string
	scope   tenant.Scope
	answer  func(*call) error
}

// routes, with liveRoutes, is the whole API of the stage; schemas/openapi.json describes it.
var routes = []route{
	{"/v1/threads", []string{"prefix", "status", "agent", "since", "limit", "after"}, tenant.ScopeRead, (*call).threads},
	{"/v1/threads/{thread}", []string{"atLeast"}, tenant.ScopeRead, (*call).thread},
	{"/v1/threads/{thread}/lineage", []string{"atLeast", "format", "width", "lanes", "words", "bundle", "ancestorsOf", "descendantsOf", "siblingsOf"}, tenant.ScopeRead, (*call).lineage},
	{"/v1/threads/{thread}/history", []string{"atLeast", "limit", "before"}, tenant.ScopeRead, (*call).history},
	{"/v1/threads/{thread}/diff", []string{"atLeast", "from", "to"}, tenant.ScopeRead, (*call).diff},
	{"/v1/threads/{thread}/export", []string{"atLeast", "startedAt", "report"}, tenant.ScopeRead, (*call).export},
	{"/v1/threads/{thread}/checkout", []string{"atLeast", "at", "runId"}, tenant.ScopeRead, (*call).checkout},
	{"/v1/threads/{thread}/state", []string{"atLeast", "at", "from", "limit"}, tenant.ScopeRead, (*call).state},
	{"/v1/threads/{thread}/changes", []string{"atLeast", "path", "message", "from", "limit"}, tenant.ScopeRead, (*call).changes},
	{"/v1/threads/{thread}/events", []string{"atLeast", "branch", "from", "to", "pace", "types", "all"}, tenant.ScopeRead, (*call).replayEvents},
	{"/v1/threads/{thread}/verify", []string{"atLeast"}, tenant.ScopeRead, (*call).verifyThread},
	{"/v1/threads/{thread}/runs/{run}", []string{"atLeast"}, tenant.ScopeRead, (*call).run},
	{"/v1/threads/{thread}/runs/{run}/history", []string{"atLeast", "limit", "before"}, tenant.ScopeRead, (*call).history},
	{"/v1/threads/{thread}/runs/{run}/checkout", []string{"atLeast", "at", "runId"}, tenant.ScopeRead, (*call).checkout},
	{"/v1/threads/{thread}/runs/{run}/state", []string{"atLeast", "at", "from", "limit"}, tenant.ScopeRead, (*call).state},
	{"/v1/threads/{thread}/runs/{run}/changes", []string{"atLeast", "path", "message", "from", "limit"}, tenant.ScopeRead, (*call).changes},
	{"/v1/threads/{thread}/runs/{run}/events", []string{"atLeast", "from", "to", "pace", "types", "all"}, tenant.ScopeRead, (*call).replayEvents},
	{"/v1/threads/{thread}/runs/{run}/verify", []string{"atLeast"}, tenant.ScopeRead, (*call).verify},
	{"/v1/threads/{thread}/runs/{run}/export", []string{"atLeast", "startedAt", "report"}, tenant.ScopeRead, (*call).export},
	{"/v1/runs", search.QueryParams, tenant.ScopeRead, (*call).searchRuns},
	{"/v1/statistics", search.StatisticsParams, tenant.ScopeRead, (*call).statistics},
	{"/v1/interrupts", []string{"agent", "limit", "after"}, tenant.ScopeRead, (*call).interrupts},
	{"/v1/verify", nil, tenant.ScopeRead, (*call).verifyAll},
	{"/v1/erasures/{position}", []string{"wait"}, tenant.ScopeErase, (*call).erasure},
	{"/v1/dead-letters", []string{"reason", "thread", "since", "limit", "after"}, tenant.ScopeRead, (*call).deadLetters},
}

// Routes returns the calls that the stage answers; each that is GET is answered to HEAD as well.
func Routes() []tenant.Route {
	all := []tenant.Route{{Method: http.MethodGet, Pattern: openAPIPattern}}
	for _, r := range routes {
		all = append(all, tenant.Route{Method: http.MethodGet, Pattern: r.pattern, Scope: r.scope})
	}
	for _, r := range liveRoutes {
		all = append(all, tenant.Route{Method: r.method, Pattern: r.pattern, Scope: r.scope})
	}
	return all
}

// openAPIPattern needs no credentials, as the page does not.
const openAPIPattern = "/openapi.json"

// description answers with the description of the API.
func description() http.Handler {
	text := web.NewStatic(schemas.OpenAPI, typeJSON, "no-cache")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if readOnly(w, r) {
			text.ServeHTTP(w, r)
		}
	})
}

// handlers returns the handler of each pattern. Live streams are not compressed: each would hold an encoder's memory, and what needs no credentials
// is compressed already.
func (s *Service) handlers(compress func(http.Handler) http.HandlerFunc) router {
	rt := router{}
	for _, r := range routes {
		rt.add(r.pattern, s.impatient(compress(s.serve(r))))
	}
	for _, r := range liveRoutes {
		rt.add(r.pattern, s.impatient(s.serveLive(r)))
	}
	rt.add(openAPIPattern, s.impatient(description()))
	page := s.impatient(web.Handler(s.cfg.Links))
	rt.add(web.Index, page)
	rt.add(web.LinksPath, page)
	rt.add(web.AssetPrefix+"{file}", page)
	return rt
}

// impatient gives the handler a writer that cuts off callers who do not read. It wraps the handler before compression.
func (s *Service) impatient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(front.NewWriter(w, s.cfg.Stall), r) })
}

// readOnly lets GET and HEAD through.
func readOnly(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	problem.Write(w, problem.Problem{Status: http.StatusMethodNotAllowed, Detail: "this path is read with GET"})
	return false
}

// serve wraps a route: method, credentials, parameters, errors, metrics.
func (s *Service) serve(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		sw := &statusWriter{ResponseWriter: w}
		defer func() { s.metrics.observe(rt.pattern, max(sw.status, 100), time.Since(start)) }()
		if !readOnly(sw, r) {
			return
		}
		c := &call{Service: s, w: sw, r: r, release: func() {}}
		defer func() { c.release() }()
		if err := c.answer(rt, quota.Reads); err != nil {
			c.refuse(err)
		}
	})
}

// revokedGrace is how long a caller has to take the rest of its answer, and why it ends, once its credentials have ended.
const revokedGrace = 2 * time.Second

// answer checks what all routes have in common and then answers. Of is what the request counts as: a read takes a slot, a
// live stream one whenever it reads.
func (c *call) answer(rt route, of quota.Kind) error {
	line := audit.From(c.r.Context())
	line.Action, line.Route = "read", c.r.Method+" "+rt.pattern
	if strings.HasSuffix(rt.pattern, "/export") {
		line.Action = "export"
	}
	defer func() { line.Thread, line.Run = c.threadID, c.runID }()
	id, err := c.auth.Authenticate(c.r)
	line.Tenant, line.Subject = id.Tenant, id.Name
	if err != nil {
		return fmt.Errorf("authenticating: %w", err)
	}
	if !id.Allows(rt.scope) {
		return &refusal{status: http.StatusForbidden, detail: fmt.Sprintf("these credentials do not allow to %s", rt.scope)}
	}
	c.tenant = id.Tenant
	c.w.used = c.metrics.tenants.Of(c.tenant)
	c.w.used.Add(usedRequests, 1)
	done, err := c.cfg.Quotas.Tenant(c.tenant).Admit(c.w.Header(), quota.Requests, of)
	if err != nil {
		return err
	}
	defer done()
	// Neither a body that comes slowly nor an answer that is read slowly outlasts its credentials.
	r, stop := tenant.Guard(c.w, c.r, c.auth, id, rt.scope)
	unhook := tenant.OnRevoked(r.Context(), func() {
		_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(revokedGrace)) // only writers without a connection refuse it (tests)
	})
	c.release = func() {
		unhook()
		stop()
	}
	c.r = r
	if c.query, err = url.ParseQuery(c.r.URL.RawQuery); err != nil {
		return badRequest("the query is not URL-encoded: " + err.Error())
	}
	for name, values := range c.query {
		// A parameter that is passed over would answer another question than was asked.
		if !slices.Contains(rt.params, name) {
			return badRequest(fmt.Sprintf("unknown parameter %q; known are %s", name, strings.Join(rt.params, ", ")))
		}
		if len(values) > 1 && name != search.ParamLabel {
			return badRequest(fmt.Sprintf("the parameter %q is given more than once", name))
		}
	}
	if err := c.ids(rt.pattern); err != nil {
		return err
	}
	c.load = &load{room: c.room, tenant: c.tenant}
	defer func() {
		c.w.begin = nil
		c.load.close()
	}()
	if err := c.load.hold(requestBytes + int64(front.HeadBytes(c.r))); err != nil {
		return err
	}
	c.r = c.r.WithContext(c.load.metered(c.r.Context()))
	if of == quota.Streams {
		return rt.answer(c)
	}
	c.w.begin = c.holdEncoder
	return c.load.inTurn(c.r.Context(), func() error { return rt.answer(c) })
}
