package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// lookTimeout bounds a look at all checks together. It is below the timeout that orchestrators give a
	// probe, so that they see a reason and not a closed connection.
	lookTimeout = 900 * time.Millisecond
	// checkTimeout is what a check is given: it is less, so that one that heeds it says why in its own words.
	checkTimeout = 800 * time.Millisecond
)

var errNoAnswer = fmt.Errorf("no answer within %v", lookTimeout)

// Check reports why a part of the process cannot take work now, or nil. One that goes on after its context
// has ended counts as failing, and is not called again before it has returned.
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
	checks []*check
	beats  []beat
	// trouble is when Watch has last seen a dependency fail, or has begun; zero before.
	trouble time.Time

	profiles bool
	token    [sha256.Size]byte
	guarded  bool
}

// check is a Check with what follows if it fails.
type check struct {
	name string
	kind kind
	ask  Check
	// last is the call that is under way, or the one before; under the Admin's mu.
	last *call
}

// call is one call of a check. Its err is there once done is closed.
type call struct {
	done chan struct{}
	err  error
}

type kind int

const (
	own        kind = iota // of this process itself
	dependency             // of another one, without which nothing goes
	optional               // of another one, without which a part goes
	remark                 // on the process's work, which goes on
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

// AddRemark adds a named check on how the process's work stands: while it fails the process is ready, and
// says that it is degraded. Other than a dependency it excuses no part that stands still.
func (a *Admin) AddRemark(name string, ask Check) { a.add(name, remark, ask) }

func (a *Admin) add(name string, k kind, ask Check) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.checks = append(a.checks, &check{name: name, kind: k, ask: ask})
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

// minToken is the least length of a token: what is shorter can be guessed.
const minToken = 16

// RequireToken makes Handler ask for a bearer token before it serves metrics and profiles. Orchestrators have none: health and
// readiness are answered without it, but without the reasons.
func (a *Admin) RequireToken(token string) error {
	if len(token) < minToken {
		return fmt.Errorf("a token needs at least %d characters", minToken)
	}
	a.token, a.guarded = sha256.Sum256([]byte(token)), true
	return nil
}

// may reports whether a request carries the token that is asked for.
func (a *Admin) may(r *http.Request) bool {
	if !a.guarded {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(sum[:], a.token[:]) == 1
}

// guard lets requests with the token through.
func (a *Admin) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.may(r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="skein admin"`)
			http.Error(w, "this needs the token of --admin-token-file", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Handler serves the endpoints.
func (a *Admin) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", a.guard(promhttp.HandlerFor(a.gatherer, promhttp.HandlerOpts{EnableOpenMetrics: true})))
	mux.HandleFunc("GET /healthz", a.serveAlive)
	mux.HandleFunc("GET /readyz", a.serveReady)
	if a.profiles {
		mux.Handle("GET /debug/pprof/", a.guard(http.HandlerFunc(pprof.Index)))
		mux.Handle("GET /debug/pprof/cmdline", a.guard(http.HandlerFunc(pprof.Cmdline)))
		mux.Handle("GET /debug/pprof/profile", a.guard(http.HandlerFunc(pprof.Profile)))
		mux.Handle("GET /debug/pprof/symbol", a.guard(http.HandlerFunc(pprof.Symbol)))
		mux.Handle("GET /debug/pprof/trace", a.guard(http.HandlerFunc(pprof.Trace)))
	}
	return mux
}

type status struct {
	Status string `json:"status"`
	// Checks says "ok" or what is wrong, by name.
	Checks map[string]string `json:"checks,omitempty"`
}

func (a *Admin) serveAlive(w http.ResponseWriter, r *http.Request) {
	stuck := a.stuck(time.Now())
	if len(stuck) > 0 {
		if !a.may(r) {
			stuck = nil
		}
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
		if c.kind != optional && c.kind != remark {
			out.Status, code = "not ready", http.StatusServiceUnavailable
		} else if code == http.StatusOK {
			out.Status = "degraded"
		}
	}
	if state != "" {
		out.Status, code = state, http.StatusServiceUnavailable
	}
	if !a.may(r) {
		out.Checks = nil
	}
	writeStatus(w, code, out)
}

// result is what a check has said.
type result struct {
	*check
	err error
}

// look runs all checks side by side, so that one that waits for an answer takes no time from the others. It
// returns in time whatever they do: a Kafka client, for one, waits for the first answer on a new connection
// as long as its own settings say.
func (a *Admin) look(ctx context.Context) []result {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	a.mu.Lock()
	results, calls := make([]result, len(a.checks)), make([]*call, len(a.checks))
	for i, c := range a.checks {
		results[i].check, calls[i] = c, c.begin(ctx)
	}
	a.mu.Unlock()
	for i, c := range calls {
		select {
		case <-c.done:
		case <-ctx.Done():
		}
		select {
		case <-c.done:
			results[i].err = c.err
		default:
			results[i].err = errNoAnswer
		}
	}
	return results
}

// begin calls the check, or returns the call that is under way. A call may have several who wait for it, so
// none of them ends it by leaving.
func (c *check) begin(ctx context.Context) *call {
	if c.last != nil {
		select {
		case <-c.last.done:
		default:
			return c.last
		}
	}
	now := &call{done: make(chan struct{})}
	c.last = now
	go func() {
		defer close(now.done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
		defer cancel()
		now.err = c.ask(ctx)
	}()
	return now
}

func writeStatus(w http.ResponseWriter, code int, s status) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	// The caller has gone if this fails; there is nobody left to tell.
	_ = json.NewEncoder(w).Encode(s)
}
