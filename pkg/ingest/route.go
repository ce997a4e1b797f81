package ingest

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/tenant"
)

// call is one of the calls that the stage answers; it is a metric's label.
type call string

const (
	callEvents call = "events"
	callInput  call = "input"
	callErase  call = "erase"
	callCancel call = "cancel"
	callAgent  call = "agent"
)

// entry is a row of the table of calls.
type entry struct {
	call call
	tenant.Route
	serve func(*Service, http.ResponseWriter, *http.Request, target)
}

// table is the whole API of the stage. Each path has one method.
var table = []entry{
	{callEvents, tenant.Route{Method: http.MethodPost, Pattern: "/v1/threads/{thread}/runs/{run}/events", Scope: tenant.ScopePublish}, (*Service).postEvents},
	{callInput, tenant.Route{Method: http.MethodPut, Pattern: "/v1/threads/{thread}/runs/{run}/input", Scope: tenant.ScopePublish}, (*Service).putInput},
	{callAgent, tenant.Route{Method: http.MethodPost, Pattern: "/v1/agents/{agent}", Scope: tenant.ScopePublish}, (*Service).postAgent},
	{callCancel, tenant.Route{Method: http.MethodPost, Pattern: "/v1/threads/{thread}/runs/{run}/cancel", Scope: tenant.ScopePublish}, (*Service).postCancel},
	{callErase, tenant.Route{Method: http.MethodDelete, Pattern: "/v1/threads/{thread}", Scope: tenant.ScopeErase}, (*Service).deleteThread},
}

// Routes returns the calls that the stage answers.
func Routes() []tenant.Route {
	routes := make([]tenant.Route, len(table))
	for i, e := range table {
		routes[i] = e.Route
	}
	return routes
}

// route is a request's call and the ids in its path, unescaped but not checked.
type route struct {
	entry
	thread, run string
	agent       string
}

// parseRoute reads the path as it was sent. net/http's own mux would answer a path with "." or an
// empty segment with a redirect to another one, which, for ids, is another thread; and an escaped
// slash belongs to its id. ok is false for paths that are none of the stage's.
func parseRoute(u *url.URL) (rt route, ok bool, rej *rejection) {
	if !strings.HasPrefix(u.EscapedPath(), "/v1/") {
		return route{}, false, nil
	}
	segments := strings.Split(u.EscapedPath(), "/")
	for i, s := range segments[1:] {
		plain, err := url.PathUnescape(s)
		if err != nil {
			return route{}, false, badID("the path has a wrong escape: %v", err)
		}
		if plain == "" || plain == "." || plain == ".." {
			return route{}, false, badID("the path has a segment %q: ids are not empty, \".\" or \"..\", and a slash in an id is written %%2F", plain)
		}
		segments[i+1] = plain
	}
	i := slices.IndexFunc(table, func(e entry) bool { return rt.match(e.Pattern, segments) })
	if i < 0 {
		return route{}, false, nil
	}
	rt.entry = table[i]
	return rt, true, nil
}

// match compares the segments of a path with a pattern and takes the ids.
func (rt *route) match(pattern string, segments []string) bool {
	names := strings.Split(pattern, "/")
	if len(names) != len(segments) {
		return false
	}
	for i, name := range names {
		switch {
		case name == "{thread}":
			rt.thread = segments[i]
		case name == "{run}":
			rt.run = segments[i]
		case name == "{agent}":
			rt.agent = segments[i]
		case name != segments[i]:
			return false
		}
	}
	return true
}

func badID(format string, args ...any) *rejection {
	return badLine(reasonID, 0, format, args...)
}

// target is where a request's records go.
type target struct {
	thread    string
	run       string // "" where the call is about the thread
	agent     string // "" where the call is about none
	tenant    string
	key       string
	partition int32
	// partitions are as many as skein.events has.
	partitions int32
	// quota is what the tenant may take, and limits what it may be large.
	quota  *quota.Tenant
	limits quota.Limits
}

// of says what limits the target's tenant.
func (t target) of(q *quota.Tenant) target {
	t.quota, t.limits = q, q.Limits()
	return t
}

// targetOf checks the ids and finds the thread's key and partition.
func targetOf(tenantID string, rt route, partitions int32) (target, *rejection) {
	if !strings.Contains(rt.Pattern, "{thread}") { // the body says which
		return target{agent: rt.agent, tenant: tenantID, partitions: partitions}, nil
	}
	if err := record.ValidateID(rt.thread); err != nil {
		return target{}, badID("thread: %v", err)
	}
	if strings.Contains(rt.Pattern, "{run}") {
		if err := record.ValidateID(rt.run); err != nil {
			return target{}, badID("run: %v", err)
		}
	}
	key, err := record.ThreadKey(tenantID, rt.thread)
	if err != nil {
		return target{}, badID("%v", err)
	}
	return target{
		thread: rt.thread, run: rt.run, agent: rt.agent, tenant: tenantID,
		key: key, partition: record.Partition([]byte(key), partitions), partitions: partitions,
	}, nil
}
