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
//	/healthz      200 as long as the process can answer at all: a failing dependency is no reason
//	              to restart it
//	/readyz       200 once the process has started, is not draining and all checks pass; else 503.
//	              The body names each check and what is wrong, also while the process starts
//	/debug/pprof  profiles, where ServeProfiles was called: they show what is in the process's memory
type Admin struct {
	gatherer prometheus.Gatherer

	mu     sync.Mutex
	state  string
	names  []string
	checks map[string]Check

	profiles bool
}

// New returns an Admin that is starting: not ready until Started is called.
func New(gatherer prometheus.Gatherer) *Admin {
	return &Admin{gatherer: gatherer, state: "starting", checks: make(map[string]Check)}
}

// AddCheck adds a named check to readiness, in place of an earlier one of that name.
func (a *Admin) AddCheck(name string, check Check) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.checks[name]; !ok {
		a.names = append(a.names, name)
	}
	a.checks[name] = check
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
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeStatus(w, http.StatusOK, status{Status: "ok"})
	})
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

func (a *Admin) serveReady(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	state, names := a.state, append([]string(nil), a.names...)
	checks := make([]Check, len(names))
	for i, name := range names {
		checks[i] = a.checks[name]
	}
	a.mu.Unlock()

	if state == "draining" {
		writeStatus(w, http.StatusServiceUnavailable, status{Status: state})
		return
	}
	out, code := status{Status: "ok", Checks: make(map[string]string, len(names))}, http.StatusOK
	for i, err := range runChecks(r.Context(), checks) {
		out.Checks[names[i]] = "ok"
		if err != nil {
			out.Checks[names[i]], out.Status, code = err.Error(), "not ready", http.StatusServiceUnavailable
		}
	}
	if state != "" {
		out.Status, code = state, http.StatusServiceUnavailable
	}
	writeStatus(w, code, out)
}

// runChecks runs all checks side by side, so that one that waits for an answer takes no time from the
// others.
func runChecks(ctx context.Context, checks []Check) []error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	errs := make([]error, len(checks))
	var wg sync.WaitGroup
	for i, check := range checks {
		wg.Go(func() { errs[i] = check(ctx) })
	}
	wg.Wait()
	return errs
}

func writeStatus(w http.ResponseWriter, code int, s status) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	// The caller has gone if this fails; there is nobody left to tell.
	_ = json.NewEncoder(w).Encode(s)
}
