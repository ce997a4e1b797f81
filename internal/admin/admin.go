package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// checkTimeout bounds all checks of one readiness request together. It is below the timeout that
// orchestrators give a probe, so that they see a reason and not a closed connection.
const checkTimeout = 900 * time.Millisecond

// Check reports why a part of the process cannot take work now, or nil.
type Check func(ctx context.Context) error

// Admin collects a process's checks and serves its administration endpoints.
//
//	/metrics      Prometheus
//	/healthz      200 unless a part of the process stands still that nothing else holds up; else 503.
//	              A failing dependency is no reason to restart it
//	/readyz       200 once the process has started, is not draining and all checks pass; else 503.
//	              The body names each check and what is wrong, also while the process starts. It says
//	              "degraded", with 200, where only what the process can do without fails
//	/debug/pprof  profiles, where ServeProfiles was called: they show what is in the process's memory
type Admin struct {
	gatherer prometheus.Gatherer

	mu     sync.Mutex
	state  string
	checks []check
	beats  []beat
	// trouble is when Watch has last seen a dependency fail, or has begun; zero before.
	trouble time.Time

	profiles bool
}

// check is a Check with what follows if it fails.
type check struct {
	name string
	kind kind
	ask  Check
}

type kind int

const (
	own        kind = iota // of this process itself
	dependency             // of another one, without which nothing goes
	optional               // of another one, without which a part goes
)

// New returns an Admin that is starting: not ready until Started is called.
func New(gatherer prometheus.Gatherer) *Admin {
	return &Admin{gatherer: gatherer, state: "starting"}
}

// AddCheck adds a named check of the process itself to readiness.
func (a *Admin) AddCheck(name string, ask Check) { a.add(name, own, ask) }

// AddDependency adds a named check of something outside of the process to readiness. While it fails,
// parts of the process may stand still.
func (a *Admin) AddDependency(name string, ask Check) { a.add(name, dependency, ask) }

// AddOptional adds a named check of something outside of the process that it can do without, in part:
// while it fails the process is ready, and says that it is degraded.
func (a *Admin) AddOptional(name string, ask Check) { a.add(name, optional, ask) }

func (a *Admin) add(name string, k kind, ask Check) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.checks = append(a.checks, check{name, k, ask})
}

// Started says that start-up is over; from now on readiness is what the checks say.
func (a *Admin) Started() { a.set("") }

// Draining makes the process not ready for good, so that no new work is sent while it stops.
func (a *Admin) Draining() { a.set("draining") }

func (a *Admin) set(state string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state != "draining" {
		a.state = state
	}
}

// ServeProfiles makes Handler serve profiles too.
func (a *Admin) ServeProfiles() { a.profiles = true }

// Handler serves the endpoints.
func (a *Admin) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.gatherer, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.HandleFunc("GET /healthz", a.serveAlive)
	mux.HandleFunc("GET /readyz", a.serveReady)
	if a.profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

type status struct {
	Status string `json:"status"`
	// Checks says "ok" or what is wrong, by name.
	Checks map[string]string `json:"checks,omitempty"`
}

func (a *Admin) serveAlive(w http.ResponseWriter, _ *http.Request) {
	stuck := a.stuck(time.Now())
	if len(stuck) > 0 {
		writeStatus(w, http.StatusServiceUnavailable, status{Status: "stuck", Checks: stuck})
		return
	}
	writeStatus(w, http.StatusOK, status{Status: "ok"})
}

func (a *Admin) serveReady(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	state := a.state
	a.mu.Unlock()
	if state == "draining" {
		writeStatus(w, http.StatusServiceUnavailable, status{Status: state})
		return
	}
	results := a.look(r.Context())
	out, code := status{Status: "ok", Checks: make(map[string]string, len(results))}, http.StatusOK
	for _, c := range results {
		out.Checks[c.name] = "ok"
		if c.err == nil {
			continue
		}
		out.Checks[c.name] = c.err.Error()
		if c.kind != optional {
			out.Status, code = "not ready", http.StatusServiceUnavailable
		} else if code == http.StatusOK {
			out.Status = "degraded"
		}
	}
	if state != "" {
		out.Status, code = state, http.StatusServiceUnavailable
	}
	writeStatus(w, code, out)
}

// result is what a check has said.
type result struct {
	check
	err error
}

// look runs all checks side by side, so that one that waits for an answer takes no time from the others.
func (a *Admin) look(ctx context.Context) []result {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	a.mu.Lock()
	results := make([]result, len(a.checks))
	for i, c := range a.checks {
		results[i].check = c
	}
	a.mu.Unlock()
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() { results[i].err = results[i].ask(ctx) })
	}
	wg.Wait()
	return results
}

func writeStatus(w http.ResponseWriter, code int, s status) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	// The caller has gone if this fails; there is nobody left to tell.
	_ = json.NewEncoder(w).Encode(s)
}
