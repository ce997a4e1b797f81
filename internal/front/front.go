package front

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/tenant"
)

// Route is one call of a stage's API: a row of its table.
type Route struct {
	// Method is the one that the path takes; GET takes HEAD as well.
	Method string
	// Pattern is the path, as in net/http and OpenAPI: {name} takes one segment.
	Pattern string
	// Scope is what the caller's credentials must allow. Without a scope the route is open to everybody.
	Scope tenant.Scope
	// Kind is what a call takes of its tenant's quotas beside a request; quota.Requests: nothing.
	Kind quota.Kind
	// Action names the call in the audit log; empty: it has no line there.
	Action string
	// Params are the query parameters that the call takes, Repeat the one of them that may be there more than once. Nil: the query is not
	// read.
	Params []string
	Repeat string
	// Compress has the answer compressed if the caller takes that.
	Compress bool
	// Serve answers a call. An error is answered as a problem, unless the answer has begun.
	Serve func(*Call) error
}

// Match reports whether a path, as it was sent, is one of the route's. Neither http.ServeMux nor path.Clean will do: %2F is a part of an
// id, and "." and ".." must not lead to another thread.
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

// Methods returns what the path takes.
func (r *Route) Methods() []string {
	if r.Method == http.MethodGet {
		return []string{http.MethodGet, http.MethodHead}
	}
	return []string{r.Method}
}

// Front is the HTTP handler of a stage: it finds a request's route, checks credentials, scope, quotas and parameters, calls the route and
// answers errors. Give it paths as they were sent: put no mux that cleans paths before it.
type Front struct {
	Routes []Route
	Auth   tenant.Authenticator
	Quotas *quota.Quotas
	// Stall is how long a caller may read nothing of its answer; 0: StallTimeout.
	Stall time.Duration
	// Compress wraps routes that say so; nil: none is compressed.
	Compress func(http.Handler) http.HandlerFunc
	// Draining returns why no request is taken any more; nil while they are.
	Draining func() error
	// Explain returns the problem of an error that is none. If it returns nil, as for a caller that has left, nothing is answered.
	Explain func(*Call, error) *Problem
	// Done is called after each call of a route; the problem is nil if there was none.
	Done func(*Call, *Problem, time.Duration)
}

// Call is one request of a route.
type Call struct {
	W     http.ResponseWriter
	R     *http.Request // its path values are unescaped
	Route *Route
	// Tenant is the caller's, Quota what it may take.
	Tenant string
	Quota  *quota.Tenant
	// Query is empty if the route takes no parameters.
	Query url.Values
	// Audit is the call's line in the audit log, for the route to complete.
	Audit *Entry

	front   *Front
	out     *Writer
	line    *line
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
	at := slices.IndexFunc(f.Routes, func(rt Route) bool { return rt.Match(path) })
	if at < 0 {
		endEarly(out, r)
		WriteProblem(out, Refuse(http.StatusNotFound, "", "there is no such path; GET /openapi.json of the query stage lists all"))
		return
	}
	route := &f.Routes[at]
	if methods := route.Methods(); !slices.Contains(methods, r.Method) {
		endEarly(out, r)
		out.Header().Set("Allow", strings.Join(methods, ", "))
		WriteProblem(out, Refuse(http.StatusMethodNotAllowed, "", "this path takes %s", strings.Join(methods, ", ")))
		return
	}
	c := &Call{Route: route, front: f, out: out, line: lineOf(r.Context()), release: func() {}}
	c.Audit = &c.line.Entry
	var problem *Problem
	start := time.Now()
	defer func() { f.Done(c, problem, time.Since(start)) }()
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

// revokedGrace is how long a caller has to take the rest of its answer, and why it ends, once its credentials have ended.
const revokedGrace = 2 * time.Second

// serve checks what all calls have in common and calls the route.
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
			c.W.Header().Set("Connection", "close") // the next request finds another process
			return err
		}
	}
	id, err := f.Auth.Authenticate(c.R)
	c.Audit.Tenant, c.Audit.Subject = id.Tenant, id.Name
	if err != nil {
		return err
	}
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
	// Neither a body that comes slowly nor an answer that is read slowly outlasts its credentials.
	r, stop := tenant.Guard(c.W, c.R, f.Auth, id, c.Route.Scope)
	// only writers without a connection refuse it (tests)
	unhook := tenant.OnRevoked(r.Context(), func() { _ = c.out.SetWriteDeadline(time.Now().Add(revokedGrace)) })
	c.R, c.release = r, func() {
		unhook()
		stop()
	}
	if bad == nil {
		bad = c.readQuery()
	}
	if bad != nil {
		return bad
	}
	return c.Route.Serve(c)
}

// readPath unescapes the path's values. The error is about an id that no thread or run can have.
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

// readQuery reads the parameters. A parameter that is passed over would answer another question than was asked.
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

// refuse answers with the problem of an error, and returns it; nil if there is nobody to answer.
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

// endEarly makes it possible to answer while the body is still coming. Without it net/http reads on before it sends the answer, for as long
// as the caller keeps the body open. Afterwards the connection is of no use.
func endEarly(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	rc := http.NewResponseController(w)
	// Both are refused only by writers that are no connection (tests), and then not needed. The rest of the body is read and dropped for a
	// moment, so that a caller in the middle of a write sees the answer and not a reset connection.
	_ = rc.EnableFullDuplex()
	_ = rc.SetReadDeadline(time.Now().Add(RestGrace))
}

// Send answers with a body. No shared cache may keep it, and others ask again each time: an erased thread must not live on in one.
func (c *Call) Send(status int, contentType string, body []byte) {
	h := c.W.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "private, no-cache")
	c.W.WriteHeader(status)
	_, _ = c.W.Write(body) // the error is the caller's connection
}

// Status is the answer's status; 0 while there is none.
func (c *Call) Status() int { return c.out.status }

// Count has f called with the number of bytes of each part of the answer as it is sent.
func (c *Call) Count(f func(bytes int)) { c.out.count = f }
