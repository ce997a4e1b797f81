package query

import (
	"net/http"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/tenant"
	"github.com/skeinhq/skein/schemas"
	"github.com/skeinhq/skein/web"
)

// Routes returns the calls that the stage answers, without the page.
func Routes() []front.Route {
	return append(new(Service).routes(), front.Route{Method: http.MethodGet, Pattern: "/openapi.json"})
}

// routes is the whole API of the stage; schemas/openapi.json describes it.
func (s *Service) routes() []front.Route {
	read := func(pattern string, answer func(*call) error, params ...string) front.Route {
		return front.Route{
			Method: http.MethodGet, Pattern: pattern, Scope: tenant.ScopeRead, Kind: quota.Reads, Action: "read", Compress: true,
			Params: append([]string{}, params...), Repeat: search.ParamLabel, Serve: s.serve(answer),
		}
	}
	// Streams are not compressed: each would hold an encoder's memory.
	stream := func(method, pattern string, answer func(*call) error, params ...string) front.Route {
		return front.Route{
			Method: method, Pattern: pattern, Scope: tenant.ScopeRead, Kind: quota.Streams, Action: "read",
			Params: append([]string{}, params...), Serve: s.serve(answer),
		}
	}
	export := func(r front.Route) front.Route {
		r.Action = "export"
		return r
	}
	erasure := read("/v1/erasures/{position}", (*call).erasure, "wait")
	erasure.Scope = tenant.ScopeErase
	return []front.Route{
		read("/v1/threads", (*call).threads, "prefix", "status", "agent", "since", "limit", "after"),
		read("/v1/threads/{thread}", (*call).thread, "atLeast"),
		read("/v1/threads/{thread}/lineage", (*call).lineage, "atLeast", "format", "width", "lanes", "words", "bundle", "ancestorsOf", "descendantsOf", "siblingsOf"),
		read("/v1/threads/{thread}/history", (*call).history, "atLeast", "limit", "before"),
		read("/v1/threads/{thread}/diff", (*call).diff, "atLeast", "from", "to"),
		export(read("/v1/threads/{thread}/export", (*call).export, "atLeast", "startedAt", "report")),
		read("/v1/threads/{thread}/checkout", (*call).checkout, "atLeast", "at", "runId"),
		read("/v1/threads/{thread}/state", (*call).state, "atLeast", "at", "from", "limit"),
		read("/v1/threads/{thread}/changes", (*call).changes, "atLeast", "path", "message", "from", "limit"),
		read("/v1/threads/{thread}/events", (*call).replayEvents, "atLeast", "branch", "from", "to", "pace", "types", "all"),
		read("/v1/threads/{thread}/verify", (*call).verifyThread, "atLeast"),
		read("/v1/threads/{thread}/runs/{run}", (*call).run, "atLeast"),
		read("/v1/threads/{thread}/runs/{run}/history", (*call).history, "atLeast", "limit", "before"),
		read("/v1/threads/{thread}/runs/{run}/checkout", (*call).checkout, "atLeast", "at", "runId"),
		read("/v1/threads/{thread}/runs/{run}/state", (*call).state, "atLeast", "at", "from", "limit"),
		read("/v1/threads/{thread}/runs/{run}/changes", (*call).changes, "atLeast", "path", "message", "from", "limit"),
		read("/v1/threads/{thread}/runs/{run}/events", (*call).replayEvents, "atLeast", "from", "to", "pace", "types", "all"),
		read("/v1/threads/{thread}/runs/{run}/verify", (*call).verify, "atLeast"),
		export(read("/v1/threads/{thread}/runs/{run}/export", (*call).export, "atLeast", "startedAt", "report")),
		read("/v1/runs", (*call).searchRuns, search.QueryParams...),
		read("/v1/statistics", (*call).statistics, search.StatisticsParams...),
		read("/v1/interrupts", (*call).interrupts, "agent", "limit", "after"),
		read("/v1/verify", (*call).verifyAll),
		erasure,
		read("/v1/dead-letters", (*call).deadLetters, "reason", "thread", "since", "limit", "after"),
		stream(http.MethodGet, "/v1/threads/{thread}/stream", (*call).attach, paramLastEventID),
		stream(http.MethodGet, "/v1/threads/{thread}/runs/{run}/stream", (*call).attach, paramLastEventID),
		stream(http.MethodPost, "/v1/connect", (*call).connect),
	}
}

// newFront returns the stage's handler: its API, the API's description and the page, which need no credentials.
func (s *Service) newFront(compress func(http.Handler) http.HandlerFunc) *front.Front {
	open := func(pattern string, h http.Handler) front.Route {
		return front.Route{Method: http.MethodGet, Pattern: pattern, Serve: func(c *front.Call) error {
			h.ServeHTTP(c.W, c.R)
			return nil
		}}
	}
	page := web.Handler(s.cfg.Links)
	return &front.Front{
		Routes: append(s.routes(), open("/openapi.json", web.NewStatic(schemas.OpenAPI, typeJSON, "no-cache")),
			open(web.Index, page), open(web.LinksPath, page), open(web.AssetPrefix+"{file}", page)),
		Auth: s.auth, Quotas: s.cfg.Quotas, Stall: front.StallTimeout, Compress: compress, Explain: s.explain, Done: s.metrics.done,
	}
}

// serve gives a call what all of the stage's have: a count, memory and, but for streams, a slot.
func (s *Service) serve(answer func(*call) error) func(*front.Call) error {
	return func(f *front.Call) error {
		used := s.metrics.tenants.Of(f.Tenant)
		used.Add(usedRequests, 1)
		f.Count(func(bytes int) { used.Add(usedBytes, bytes) })
		c := &call{Service: s, Call: f, threadID: f.R.PathValue("thread"), runID: f.R.PathValue("run"), load: s.room.load(f.Tenant)}
		defer c.load.close()
		if err := c.load.hold(requestBytes + int64(front.HeadBytes(c.R))); err != nil {
			return err
		}
		c.R = c.R.WithContext(c.load.metered(c.R.Context()))
		if f.Route.Kind == quota.Streams {
			return answer(c)
		}
		return c.load.inTurn(c.R.Context(), func() error { return answer(c) })
	}
}
