package front

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/skeinhq/skein/internal/trace"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/tenant"
)

// Route is one call of a stage's API.
type Route struct {
	// Method is the HTTP method. GET includes HEAD.
	Method string
	// Pattern is the path, as in net/http and OpenAPI: {name} matches one segment.
	Pattern string
	// Scope is the permission that the caller's credentials need. A route without a scope is open to everybody.
	Scope tenant.Scope
	// Kind is the quota that a call uses besides quota.Requests; the value quota.Requests means none.
	Kind quota.Kind
	// Action is the call's name in the audit log; "" means that the call is not logged.
	Action string
	// Params lists the allowed query parameters; Repeat is the one that may occur more than once. If Params is nil, the
	// query is not read.
	Params []string
	Repeat string
	// Compress enables compression of the response if the caller accepts it.
	Compress bool
	// Serve handles a call. Its error is sent as a problem, unless the response has begun.
	Serve func(*Call) error
}

// Match reports whether an escaped path matches the route. http.ServeMux and path.Clean are not usable here: %2F is a
// part of an id, and "." and ".." must not lead to another thread.
func (r *Route) Match(path string) bool {
	pattern, more := r.Pattern, true
	for more {
		var name, segment string
		var also bool
		name, pattern, more = strings.Cut(pattern, "/")
		segment, path, also = strings.Cut(path, "/")
		if more != also || name != segment && !strings.HasPrefix(name, "{") {
			return false
		}
	}
	return true
}

// Methods returns the methods that the path accepts.
func (r *Route) Methods() []string {
	if r.Method == http.MethodGet {
		return []string{http.MethodGet, http.MethodHead}
	}
	return []string{r.Method}
}

// Front is the HTTP handler of a stage. It finds a request's route, checks credentials, scope, quotas and parameters,
// calls the route and answers errors. It needs unchanged paths, so do not wrap it in a mux that cleans them.
type Front struct {
	// Stage is the name of the stage. OtherURL is the URL at which callers reach the other HTTP stage, or "".
	Stage, OtherURL string
	Routes          []Route
	Auth            tenant.Authenticator
	Quotas          *quota.Quotas
	// Stall is how long a caller may read nothing of its response; 0 means StallTimeout.
	Stall time.Duration
	// Compress wraps the handler of routes with Route.Compress; nil means no compression.
	Compress func(http.Handler) http.HandlerFunc
	// Draining returns why new requests are refused; nil while they are accepted. The field may be nil.
	Draining func() error
	// Explain returns the problem for an error that ProblemOf does not know. If it returns nil, as for a caller that has
	// disconnected, no response is sent.
	Explain func(*Call, error) *Problem
	// Tracer makes the spans of calls with good credentials. It may be nil.
	Tracer *trace.Tracer
	// Done is called after each call of a route, with nil if there was no problem.
	Done func(*Call, *Problem, time.Duration)
}

// Call is one request of a route.
type Call struct {
	W     http.ResponseWriter
	R     *http.Request // with unescaped path values
	Route *Route
	// Tenant is the caller's tenant. Quota counts the tenant's use of its quotas.
	Tenant string
	Quota  *quota.Tenant
	// Query contains the query parameters; it is empty if the route has none.
	Query url.Values
	// Audit is the call's line in the audit log. The route may complete it.
	Audit *Entry

	front   *Front
	out     *Writer
	line    *line
	traced  func(status int, about trace.About) // ends the call's span
	release func()
}

// ServeHTTP implements http.Handler.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out, ok := w.(*Writer)
	if !ok {
		out = NewWriter(w)
	}
	if f.Stall > 0 {
		out.stall = f.Stall
	}
	path := r.URL.EscapedPath()
	at := slices.IndexFunc(f.Routes, func(rt Route) bool { return rt.Match(path) && slices.Contains(rt.Methods(), r.Method) })
	if at < 0 {
		endEarly(out, r)
		WriteProblem(out, f.noRoute(path, r.Method, out.Header()))
		return
	}
	route := &f.Routes[at]
	c := &Call{Route: route, front: f, out: out, line: lineOf(r.Context()), traced: func(int, trace.About) {}, release: func() {}}
	c.Audit = &c.line.Entry
	var problem *Problem
	start := time.Now()
	defer func() { f.Done(c, problem, time.Since(start)) }()
	defer func() { c.traced(out.status, trace.About{Tenant: c.Tenant, Thread: c.Audit.Thread, Run: c.Audit.Run}) }()
	serve := func(w http.ResponseWriter, r *http.Request) {
		c.W, c.R = w, r
		defer func() { c.release() }()
		if err := c.serve(); err != nil {
			problem = c.refuse(err)
		}
	}
	if route.Compress && f.Compress != nil {
		serve = f.Compress(http.HandlerFunc(serve))
	}
	serve(out, r)
}

// revokedGrace is how long a caller may take, after its credentials have ended, to read the rest of its response, which
// includes the reason.
const revokedGrace = 2 * time.Second

// serve calls the route, after the checks that all routes with a scope share: draining, credentials, quotas, path and query.
func (c *Call) serve() error {
	f, bad := c.front, c.readPath()
	if c.Route.Scope == "" {
		return c.Route.Serve(c)
	}
	if action := c.Route.Action; action != "" {
		c.Audit.Action, c.Audit.Route = action, c.R.Method+" "+c.Route.Pattern
	}
	c.Audit.Thread, c.Audit.Run, c.Audit.Agent = c.R.PathValue("thread"), c.R.PathValue("run"), c.R.PathValue("agent")
	if f.Draining != nil {
		if err := f.Draining(); err != nil {
			c.W.Header().Set("Connection", "close") // so that the next request reaches another process
			return err
		}
	}
	id, err := f.Auth.Authenticate(c.R)
	c.Audit.Tenant, c.Audit.Subject = id.Tenant, id.Name
	if err != nil {
		return err
	}
	c.traced = f.Tracer.Request(c.R, c.Route.Pattern)
	if !id.Allows(c.Route.Scope) {
		return Refuse(http.StatusForbidden, ReasonScope, "these credentials do not allow to %s", c.Route.Scope)
	}
	c.Tenant, c.Quota = id.Tenant, f.Quotas.Tenant(id.Tenant)
	kinds := []quota.Kind{quota.Requests, c.Route.Kind}
	done, err := c.Quota.Admit(c.W.Header(), slices.Compact(kinds)...)
	if err != nil {
		return err
	}
	defer done()
	c.watch(id)
	if bad == nil {
		bad = c.readQuery()
	}
	if bad != nil {
		return bad
	}
	return c.Route.Serve(c)
}

// watch ends the body and the response when the credentials end, even if the caller is slow. It sets c.release.
func (c *Call) watch(id tenant.Identity) {
	ctx, unwatch := tenant.Watch(c.R, c.front.Auth, id, c.Route.Scope)
	c.R = c.R.WithContext(ctx)
	in, ok := c.R.Body.(*body)
	if !ok {
		in = &body{ReadCloser: c.R.Body}
		in.whole.Store(c.R.ContentLength == 0)
		c.R.Body = in
	}
	in.ctx = ctx
	cut := false // the end of the credentials ended the body
	unhook := tenant.OnRevoked(ctx, func() {
		// Both calls fail only for the response writers of tests.
		_ = c.out.SetWriteDeadline(time.Now().Add(revokedGrace))
		if !in.whole.Load() {
			cut = true
			_ = c.out.rc.SetReadDeadline(time.Now())
		}
	})
	c.release = func() {
		unhook()
		unwatch()
		if cut && c.R.ProtoMajor < 2 && c.W.Header().Get("Connection") != "close" {
			// Close the connection: net/http would parse the rest of the body as the next request.
			_ = http.NewResponseController(c.W).Flush()
			panic(http.ErrAbortHandler)
		}
	}
}

// readPath unescapes the path's values. It returns an error for an invalid thread or run id or an invalid escape.
func (c *Call) readPath() (bad error) {
	segments := strings.Split(c.R.URL.EscapedPath(), "/")
	for i, name := range strings.Split(c.Route.Pattern, "/") {
		if !strings.HasPrefix(name, "{") {
			continue
		}
		name = strings.Trim(name, "{}")
		value, err := url.PathUnescape(segments[i])
		if err == nil && (name == "thread" || name == "run") {
			err = record.ValidateID(value)
		}
		if err != nil && bad == nil {
			bad = Refuse(http.StatusBadRequest, ReasonID, "the %s in the path: %v", name, err)
		}
		c.R.SetPathValue(name, value)
	}
	return bad
}

// readQuery reads the query parameters. It refuses unknown ones, because ignoring one would answer another question.
func (c *Call) readQuery() (err error) {
	if c.Route.Params == nil {
		return nil
	}
	if c.Query, err = url.ParseQuery(c.R.URL.RawQuery); err != nil {
		return Refuse(http.StatusBadRequest, "", "the query is not URL-encoded: %v", err)
	}
	for name, values := range c.Query {
		if !slices.Contains(c.Route.Params, name) {
			return Refuse(http.StatusBadRequest, "", "unknown parameter %q; known are %s", name, strings.Join(c.Route.Params, ", "))
		}
		if len(values) > 1 && name != c.Route.Repeat {
			return Refuse(http.StatusBadRequest, "", "the parameter %q is given more than once", name)
		}
	}
	return nil
}

// refuse sends the problem of an error and returns the problem. It returns nil if no response is needed.
func (c *Call) refuse(err error) *Problem {
	p := ProblemOf(err)
	if tenant.Revoked(c.R.Context()) {
		ended := ProblemOf(tenant.ErrRevoked)
		if p != nil {
			ended.Members = p.Members
		}
		p = ended
	}
	if p == nil {
		p = c.front.Explain(c, err)
	}
	if p != nil && c.out.status == 0 {
		endEarly(c.W, c.R)
		WriteProblem(c.W, p)
	}
	return p
}

// endEarly allows a response while the request's body is still arriving. Otherwise, net/http would first read the body,
// for as long as the caller keeps it open. Afterwards, the connection cannot be used for another request.
func endEarly(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	rc := http.NewResponseController(w)
	// Both calls fail only for the response writers of tests, which do not need them. For RestGrace, net/http reads and
	// drops the rest of the body, so that a caller that is still writing gets the response and not a reset connection.
	_ = rc.EnableFullDuplex()
	_ = rc.SetReadDeadline(time.Now().Add(RestGrace))
}

// Send sends a response with a body. Shared caches must not store the response and private caches must revalidate it,
// so that an erased thread does not remain in a cache.
func (c *Call) Send(status int, contentType string, body []byte) {
	h := c.W.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "private, no-cache")
	c.W.WriteHeader(status)
	_, _ = c.W.Write(body) // fails only if the caller has disconnected
}

// Status returns the response's status; 0 before the response begins.
func (c *Call) Status() int { return c.out.status }

// Count registers a function, which is called after each write of the response with the number of bytes sent.
func (c *Call) Count(f func(bytes int)) { c.out.count = f }
