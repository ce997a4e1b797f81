package tenants

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/ingest"
	"github.com/skeinhq/skein/pkg/ingest/agents"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/query"
	"github.com/skeinhq/skein/pkg/tenant"
	"github.com/skeinhq/skein/test/parts/partstest"
	"github.com/skeinhq/skein/test/site"
)

// Docker's test containers keep one connection for as long as the process lives.
func TestMain(m *testing.M) {
	partstest.ExitShort("all stages together")
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/testcontainers/testcontainers-go.(*Reaper).connect.func1"))
}

// tenants is all four stages in one process, with the tenants of a key file.
type tenants struct {
	t     *testing.T
	kafka kafka.Config
	keys  string
	// secrets are the keys by name.
	secrets map[string]string
	// erasure is where acme has asked for one.
	erasure string
	// proxied are the runs that the proxy holds.
	proxied *ingest.Runs
	// stages are the HTTP sides and their tables of routes.
	stages []stage
}

type stage struct {
	name   string
	url    string
	routes []front.Route
}

func startSite(t *testing.T, k kafka.Config, st site.Store) *tenants {
	t.Helper()
	s := &tenants{t: t, kafka: k, keys: filepath.Join(t.TempDir(), "keys.yaml"), secrets: map[string]string{}}
	// The keys are there before the stages are; what is read later are those that end (endedKeys).
	s.key("acme", "acme", tenant.Scopes()...)
	s.key("umbrella", "umbrella", tenant.Scopes()...)
	s.key("stranger", "stranger", tenant.Scopes()...)
	for _, without := range tenant.Scopes() {
		var rest []tenant.Scope
		for _, scope := range tenant.Scopes() {
			if scope != without {
				rest = append(rest, scope)
			}
		}
		s.key("acme without "+string(without), "acme", rest...)
	}
	auth := tenant.OpenKeyFile(s.keys, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	site.Run(t, auth.Run)
	stage := site.Start(t, k, st, site.Options{Auth: auth, Agents: s.agent(), Checkpoint: 50 * time.Millisecond})
	s.proxied = stage.Runs()
	s.serve("ingest", stage.Handler(), ingest.Routes())
	s.serve("query", site.Query(t, k, st, auth, func(*query.Config) {}).Handler(), query.Routes())
	return s
}

// agentName is the proxy's agent, which says the same to everybody; agentRuns numbers its runs.
const agentName = "helper"

var agentRuns atomic.Int64

func (s *tenants) agent() agents.Config {
	s.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"type\":\"RUN_STARTED\",\"threadId\":\"w\",\"runId\":\"w\"}\n\ndata: {\"type\":\"RUN_FINISHED\",\"threadId\":\"w\",\"runId\":\"w\"}\n\n")
	}))
	s.t.Cleanup(server.Close)
	known, err := agents.ParsePairs([]string{agentName + "=" + server.URL})
	if err != nil {
		s.t.Fatal(err)
	}
	return known
}

func (s *tenants) serve(name string, h http.Handler, routes []front.Route) {
	server := httptest.NewServer(h)
	s.t.Cleanup(server.Close)
	s.stages = append(s.stages, stage{name, server.URL, routes})
}

// key puts a key of a tenant into the file.
func (s *tenants) key(name, tenantID string, scopes ...tenant.Scope) {
	s.t.Helper()
	s.secrets[name] = tenant.NewKey()
	if err := tenant.AppendKey(s.keys, tenant.Entry(name, tenantID, scopes, s.secrets[name])); err != nil {
		s.t.Fatal(err)
	}
}

// endedKeys makes two keys of acme with all scopes that were valid, of which one has expired and one was taken out of the file.
func (s *tenants) endedKeys() {
	s.t.Helper()
	s.secrets["expired"], s.secrets["taken out"] = tenant.NewKey(), tenant.NewKey()
	expired := tenant.Entry("expired", "acme", tenant.Scopes(), s.secrets["expired"])
	ends := time.Now().Add(6 * time.Second) // a changed file is read within 2 s
	expired.Expires = &ends
	check := func(err error) {
		if err != nil {
			s.t.Fatal(err)
		}
	}
	answers := func(name string, want int) {
		s.t.Helper()
		site.Eventually(s.t, fmt.Sprintf("the key that is %s is answered with %d", name, want), func() (string, bool) {
			r := s.call(s.stages[1], http.MethodGet, "/v1/threads", s.as(name))
			return r.String(), r.status == want
		})
	}
	check(tenant.AppendKey(s.keys, expired))
	rest, err := os.ReadFile(s.keys)
	check(err)
	check(tenant.AppendKey(s.keys, tenant.Entry("taken out", "acme", tenant.Scopes(), s.secrets["taken out"])))
	answers("expired", http.StatusOK)
	answers("taken out", http.StatusOK)
	check(os.WriteFile(s.keys, rest, 0o600))
	answers("taken out", http.StatusUnauthorized)
	answers("expired", http.StatusUnauthorized)
}

// as is the Authorization header of a key by its name.
func (s *tenants) as(name string) http.Header {
	return http.Header{"Authorization": {"Bearer " + s.secrets[name]}}
}

// reply is an answer, read whole.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) String() string { return fmt.Sprintf("%d %v %s", r.status, r.header, r.body) }

// call makes a request as it stands in a stage's table.
func (s *tenants) call(st stage, method, path string, who http.Header) reply {
	s.t.Helper()
	var body io.Reader
	header := who.Clone()
	if header == nil {
		header = http.Header{}
	}
	switch {
	case strings.HasPrefix(path, "/v1/agents/"):
		// Here the payload names the thread, and never the tenant.
		header.Set("Content-Type", "application/json")
		body = strings.NewReader(fmt.Sprintf(`{"threadId":"w","runId":"run-%d","tenant":"acme","tenantId":"acme","state":{},"messages":[],"tools":[],"context":[],"forwardedProps":{"tenant":"acme"}}`, agentRuns.Add(1)))
	case strings.HasPrefix(path, "/v1/connect"):
		header.Set("Content-Type", "application/json")
		body = strings.NewReader(`{"threadId":"t1","runId":"mine","tenant":"acme","state":{},"messages":[],"tools":[],"context":[],"forwardedProps":{"tenant":"acme"}}`)
	case strings.HasSuffix(path, "/cancel"):
		header.Set("Content-Type", "application/json")
		body = strings.NewReader(`{"reason":"of nobody","tenant":"acme"}`)
	case method == http.MethodPatch:
		header.Set("Content-Type", "application/json")
		body = strings.NewReader(`{"title":"of nobody"}`)
	case method == http.MethodPost:
		header.Set("Content-Type", "application/x-ndjson")
		// What a payload says of tenants and threads is nobody's.
		body = strings.NewReader(`{"type":"RUN_STARTED","threadId":"t1","runId":"r1","tenant":"acme","tenantId":"acme"}`)
	case method == http.MethodPut:
		header.Set("Content-Type", "application/json")
		body = strings.NewReader(input("of nobody"))
	}
	got := s.send(method, st.url+path, header, body)
	if run := agentRuns.Load(); strings.HasPrefix(path, "/v1/agents/") {
		// The stream does not wait for Kafka: only then is all of it there.
		site.Eventually(s.t, "the run is published", func() (string, bool) {
			held := false
			for _, who := range []string{"acme", "umbrella", "stranger"} {
				held = held || s.proxied.Held(who+"/w", fmt.Sprintf("run-%d", run))
			}
			return path, !held
		})
	}
	return got
}

// streamFor is how long a live stream is read, from its first byte on.
const streamFor = 700 * time.Millisecond

func (s *tenants) send(method, url string, header http.Header, body io.Reader) reply {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	live := strings.Contains(url, "/stream") || strings.Contains(url, "/v1/connect")
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header = header
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	if live {                                // it may have no end
		defer time.AfterFunc(streamFor, cancel).Stop()
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil && !(live && ctx.Err() != nil) {
		s.t.Fatal(err)
	}
	resp.Header.Del("Date")
	return reply{resp.StatusCode, resp.Header, string(text)}
}

// publish plays a run through ingest; one without an end stays open.
func (s *tenants) publish(who, thread, run, marker string, ended bool) {
	s.t.Helper()
	header := s.as(who)
	header.Set("Content-Type", "application/json")
	path := s.stages[0].url + "/v1/threads/" + thread + "/runs/" + run
	if r := s.send(http.MethodPut, path+"/input", header, strings.NewReader(input(marker))); r.status != http.StatusOK {
		s.t.Fatalf("publishing: %s", r)
	}
	events := []string{
		fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, thread, run),
		`{"type":"TEXT_MESSAGE_START","messageId":"a1","role":"assistant"}`,
		fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"a1","delta":%q}`, marker),
		`{"type":"TEXT_MESSAGE_END","messageId":"a1"}`,
		fmt.Sprintf(`{"type":"STATE_SNAPSHOT","snapshot":{"note":%q}}`, marker),
	}
	if ended {
		events = append(events, fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, thread, run))
	}
	header.Set("Content-Type", "application/x-ndjson")
	if r := s.send(http.MethodPost, path+"/events", header, strings.NewReader(strings.Join(events, "\n"))); r.status != http.StatusOK {
		s.t.Fatalf("publishing: %s", r)
	}
}

func input(marker string) string {
	return fmt.Sprintf(`{"threadId":"t1","runId":"r1","state":{},"messages":[{"id":"u1","role":"user","content":%q}],"tools":[],"context":[],"forwardedProps":{}}`, marker)
}
