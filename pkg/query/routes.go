package query

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzhttp"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/tenant"
	"github.com/skeinhq/skein/schemas"
	"github.com/skeinhq/skein/web"
)

// Routes returns the routes of the stage, without those of the page.
func Routes() []front.Route {
	return append(new(Service).routes(), front.Route{Method: http.MethodGet, Pattern: "/openapi.json"})
}

// routes returns the whole API of the stage; schemas/openapi.json describes it.
func (s *Service) routes() []front.Route {
	// Some reads answer with lines, which they write as they produce them.
	lines := func(pattern string, answer func(*call) error, params ...string) front.Route {
		return front.Route{
			Method: http.MethodGet, Pattern: pattern, Scope: tenant.ScopeRead, Kind: quota.Reads, Action: "read", Compress: true,
			Params: append([]string{}, params...), Repeat: search.ParamLabel, Serve: s.serve(answer),
		}
	}
	read := func(pattern string, get func(*call) (*answer, error), params ...string) front.Route {
		return lines(pattern, func(c *call) error {
			a, err := get(c)
			if err != nil {
				return err
			}
			return c.write(a)
		}, params...)
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
		read("/v1/threads", (*call).threads, "prefix", "status", "agent", "since", "title", "archived", "limit", "after"),
		read("/v1/threads/{thread}", (*call).thread, "atLeast", "fresh"),
		read("/v1/threads/{thread}/lineage", (*call).lineage, "atLeast", "fresh", "format", "width", "lanes", "words", "bundle", "ancestorsOf",
			"descendantsOf", "siblingsOf"),
		read("/v1/threads/{thread}/history", (*call).history, "atLeast", "fresh", "limit", "before"),
		read("/v1/threads/{thread}/diff", (*call).diff, "atLeast", "fresh", "from", "to"),
		export(read("/v1/threads/{thread}/export", (*call).export, "atLeast", "fresh", "startedAt", "report")),
		read("/v1/threads/{thread}/checkout", (*call).checkout, "atLeast", "fresh", "at", "runId"),
		read("/v1/threads/{thread}/state", (*call).state, "atLeast", "fresh", "at", "from", "limit", "find"),
		read("/v1/threads/{thread}/changes", (*call).changes, "atLeast", "fresh", "path", "message", "from", "limit"),
		lines("/v1/threads/{thread}/events", (*call).replayEvents, "atLeast", "fresh", "branch", "from", "to", "pace", "types", "all"),
		lines("/v1/threads/{thread}/verify", (*call).verifyThread, "atLeast", "fresh"),
		read("/v1/threads/{thread}/runs/{run}", (*call).run, "atLeast", "fresh"),
		read("/v1/threads/{thread}/runs/{run}/history", (*call).history, "atLeast", "fresh", "limit", "before"),
		read("/v1/threads/{thread}/runs/{run}/checkout", (*call).checkout, "atLeast", "fresh", "at", "runId"),
		read("/v1/threads/{thread}/runs/{run}/state", (*call).state, "atLeast", "fresh", "at", "from", "limit", "find"),
		read("/v1/threads/{thread}/runs/{run}/changes", (*call).changes, "atLeast", "fresh", "path", "message", "from", "limit"),
		lines("/v1/threads/{thread}/runs/{run}/events", (*call).replayEvents, "atLeast", "fresh", "from", "to", "pace", "types", "all"),
		read("/v1/threads/{thread}/runs/{run}/verify", (*call).verify, "atLeast", "fresh"),
		export(read("/v1/threads/{thread}/runs/{run}/export", (*call).export, "atLeast", "fresh", "startedAt", "report")),
		read("/v1/runs", (*call).searchRuns, search.QueryParams...),
		read("/v1/statistics", (*call).statistics, search.StatisticsParams...),
		read("/v1/interrupts", (*call).interrupts, "agent", "limit", "after"),
		lines("/v1/verify", (*call).verifyAll),
		erasure,
		read("/v1/dead-letters", (*call).deadLetters, "reason", "thread", "since", "limit", "after"),
		stream(http.MethodGet, "/v1/threads/{thread}/stream", (*call).attach, paramLastEventID),
		stream(http.MethodGet, "/v1/threads/{thread}/runs/{run}/stream", (*call).attach, paramLastEventID),
		stream(http.MethodPost, "/v1/connect", (*call).connect),
	}
}

var description = sync.OnceValue(func() web.Static { return web.NewStatic(schemas.OpenAPI, typeJSON, "no-cache") })

// newFront returns the handler of the stage's API. It also serves the API's description and the page, which need no credentials.
func (s *Service) newFront(compress func(http.Handler) http.HandlerFunc) *front.Front {
	open := func(pattern string, h http.Handler) front.Route {
		return front.Route{Method: http.MethodGet, Pattern: pattern, Serve: func(c *front.Call) error {
			h.ServeHTTP(c.W, c.R)
			return nil
		}}
	}
	page := web.Handler(s.cfg.Links, s.cfg.IngestURL)
	return &front.Front{
		Stage: front.StageQuery, OtherURL: s.cfg.IngestURL,
		Routes: append(s.routes(), open("/openapi.json", description()),
			open(web.Index, page), open(web.LinksPath, page), open(web.AssetPrefix+"{file}", page)),
		Auth: s.auth, Quotas: s.cfg.Quotas, Tracer: s.cfg.Tracer,
		Stall: front.StallTimeout, Compress: compress, Explain: s.explain, Done: s.metrics.done,
	}
}

// call is one request that is being answered.
type call struct {
	*Service
	*front.Call
	// open are the current records of the open runs that read has followed; openBytes is the memory that was taken for them.
	open      map[string]*record.Run
	openBytes int64
	// one means that read has the row of runID alone.
	one bool
	// details means that a read waits for the thread's details, too.
	details bool
	// threadID and runID are those of the path; runID is empty if the path has none.
	threadID, runID string
	// load tracks the memory and slot of the request.
	load *load
}

// serve wraps a call: it takes the call's memory and, except for streams, a slot, and counts the call.
func (s *Service) serve(answer func(*call) error) func(*front.Call) error {
	return func(f *front.Call) error {
		s.metrics.tenants.Add(f.Tenant, 1)
		f.Count(func(bytes int) { s.metrics.tenants.Add(f.Tenant, 0, bytes) })
		c := &call{Service: s, Call: f, threadID: f.R.PathValue("thread"), runID: f.R.PathValue("run"), load: s.room.load(f.Tenant)}
		defer c.load.close()
		if err := c.load.hold(requestBytes + int64(front.HeadBytes(c.R))); err != nil {
			return err
		}
		ctx, _ := c.load.metered(c.R.Context())
		c.R = c.R.WithContext(ctx)
		if f.Route.Kind == quota.Streams { // takes a slot when it works
			return answer(c)
		}
		if err := c.load.acquire(c.R.Context()); err != nil {
			return err
		}
		return answer(c)
	}
}

// headerIndexedTo is the header with the index's position, for answers whose body has no field for it.
const headerIndexedTo = "Skein-Indexed-To"

const typeJSON = "application/json"

// answer is the result of a call. write encodes and sends it.
type answer struct {
	status      int              // 0: 200
	indexedTo   *record.Position // in a header, for answers whose body has no field for it
	remarks     []string         // in a header: the badges
	vary        bool             // the answer depends on the Accept header
	tag         string           // identifies the answer, for 304
	contentType string           // "": JSON
	// body returns the bytes.
	body func() ([]byte, error)
	// bytes is the memory that writing a large body takes; 0 if it is small or was taken before. A 304 takes none.
	bytes int64
}

// write sends an answer. The caller may be slow, so write releases the slot first.
func (c *call) write(a *answer) error {
	h := c.W.Header()
	if a.indexedTo != nil {
		h.Set(headerIndexedTo, a.indexedTo.String())
	}
	if len(a.remarks) > 0 {
		h.Set(headerRemarks, strings.Join(append(h.Values(headerRemarks), a.remarks...), ", "))
	}
	if a.vary {
		h.Add("Vary", "Accept")
	}
	if a.tag != "" {
		h.Set("ETag", a.tag)
		if has(c.R, a.tag) {
			h.Set("Cache-Control", "private, no-cache")
			c.W.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	if err := c.load.take(a.bytes); err != nil {
		h.Del("ETag")
		return err
	}
	body, err := a.body()
	if err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	if a.status == http.StatusTooEarly {
		h.Set("Retry-After", "1")
	}
	c.holdEncoder()
	c.load.releaseSlot()
	c.Send(cmp.Or(a.status, http.StatusOK), cmp.Or(a.contentType, typeJSON), body)
	return nil
}

// has reports whether the caller already has the answer with this tag.
func has(r *http.Request, tag string) bool {
	for _, have := range strings.Split(strings.Join(r.Header.Values("If-None-Match"), ","), ",") {
		if have = strings.TrimSpace(have); have == tag || have == "*" {
			return true
		}
	}
	return false
}

// document returns an answer.body that is v as JSON and a line feed.
func document(v any) func() ([]byte, error) {
	return func() ([]byte, error) {
		b, err := marshal(v)
		return append(b, '\n'), err
	}
}

// marshal returns v as JSON. Raw parts of it keep their numbers and escapes.
func marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encoding answer: %w: %w", errBroken, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// answerCopies is how many copies of an answer's text are in memory while it is written.
const answerCopies = 2

// weigh takes the memory for an answer with these messages and texts.
func (c *call) weigh(messages []agui.Message, texts ...json.RawMessage) error {
	return c.load.take(answerBytes(messages, texts...))
}

func answerBytes(messages []agui.Message, texts ...json.RawMessage) int64 {
	n := 0
	for _, m := range messages {
		n += len(m.Raw)
	}
	for _, t := range texts {
		n += len(t)
	}
	return int64(answerCopies * n)
}

// encoderBytes is the memory that compression needs while an answer is written.
const encoderBytes = 1 << 20

// holdEncoder takes the memory for compressing the answer. If the tenant has none left, the answer is sent
// uncompressed.
func (c *call) holdEncoder() {
	takes := c.R.Header.Get("Accept-Encoding")
	if c.Route.Compress && (strings.Contains(takes, "gzip") || strings.Contains(takes, "zstd")) && c.load.hold(encoderBytes) != nil {
		c.W.Header().Set(gzhttp.HeaderNoCompression, "no memory")
	}
}
