package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net/http"
	_ "net/http/pprof" // adds its handlers to http.DefaultServeMux
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/singleflight"
)

const (
	// lookTimeout bounds all checks together. It is below the usual 1 s timeout of probes, so that a probe still gets the reason.
	lookTimeout = 900 * time.Millisecond
	// checkTimeout bounds one check. It is less than lookTimeout, so that the check can return its own error.
	checkTimeout = 800 * time.Millisecond
)

var errNoAnswer = fmt.Errorf("no answer within %v", lookTimeout)

// Check returns why a part of the process cannot take work, or nil. A check that runs on after its context has ended counts as
// failing, and is not called again before it returns.
type Check func(ctx context.Context) error

// Admin collects a process's checks and serves its administration endpoints.
//
//	/metrics      Prometheus
//	/healthz      503 if a part of the process makes no progress although all dependencies answer; else 200.
//	              A restart cannot repair a failing dependency
//	/readyz       200 once the process has started, is not draining and all checks pass; else 503.
//	              The body has each check and its error, also while the process starts. Its status is
//	              "degraded", with 200, if only optional checks and remarks fail
//	/status       as /readyz, with version, stages and some of their figures
//	/debug/pprof  profiles, after ServeProfiles: they show the contents of the process's memory
type Admin struct {
	gatherer prometheus.Gatherer
	failing  *prometheus.GaugeVec // check
	version  string
	stages   []string

	mu     sync.Mutex
	state  string
	checks []*check
	beats  []beat
	// trouble is when Watch last saw a dependency fail, or when Watch began; zero before Watch runs.
	trouble time.Time

	profiles bool
	token    [sha256.Size]byte
	guarded  bool
}

// check is a Check with its name and kind.
type check struct {
	name string
	kind kind
	ask  Check
	// running has the call of ask that has not returned.
	running singleflight.Group
}

type kind int

const (
	own        kind = iota // of the process itself
	dependency             // of something that all of the process needs
	optional               // of something that a part of the process needs
	remark                 // of the process's work, which continues
)

// New returns an Admin that is not ready until Started is called. It serves the registry's metrics, and adds one of its checks.
func New(registry interface {
	prometheus.Gatherer
	prometheus.Registerer
}) *Admin {
	a := &Admin{gatherer: registry, state: "starting", failing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "skein_admin_check_failing", Help: "1 while a check of readiness fails, by check.",
	}, []string{"check"})}
	registry.MustRegister(a.failing)
	return a
}

// Identify sets the version and the stages that the process has.
func (a *Admin) Identify(version string, stages ...string) { a.version, a.stages = version, stages }

// AddCheck adds a named check of the process itself to readiness.
func (a *Admin) AddCheck(name string, ask Check) { a.add(name, own, ask) }

// AddDependency adds a named check of another process to readiness. While it fails, liveness does not require progress.
func (a *Admin) AddDependency(name string, ask Check) { a.add(name, dependency, ask) }

// AddOptional adds a named check of another process that only a part of this one needs. While it fails this process is ready but
// degraded.
func (a *Admin) AddOptional(name string, ask Check) { a.add(name, optional, ask) }

// AddRemark adds a named check of the process's work. While it fails the process is ready but degraded; liveness still requires progress.
func (a *Admin) AddRemark(name string, ask Check) { a.add(name, remark, ask) }

func (a *Admin) add(name string, k kind, ask Check) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.checks = append(a.checks, &check{name: name, kind: k, ask: ask})
	a.failing.WithLabelValues(name)
}

// Started ends the start-up. After that, readiness depends on the checks.
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

// ServeProfiles makes Handler serve profiles.
func (a *Admin) ServeProfiles() { a.profiles = true }

// minToken is the minimum length of a token: shorter ones can be guessed.
const minToken = 16

// RequireToken makes Handler require a bearer token for metrics and profiles. Health and readiness also answer requests
// without a token, because orchestrators have none, but then give no reasons.
func (a *Admin) RequireToken(token string) error {
	if len(token) < minToken {
		return fmt.Errorf("a token needs at least %d characters", minToken)
	}
	a.token, a.guarded = sha256.Sum256([]byte(token)), true
	return nil
}

// may reports whether a request has the token or needs none.
func (a *Admin) may(r *http.Request) bool {
	if !a.guarded {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(sum[:], a.token[:]) == 1
}

// guard refuses requests without the token.
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
	mux.HandleFunc("GET /status", a.serveReady)
	if a.profiles {
		mux.Handle("GET /debug/pprof/", a.guard(http.DefaultServeMux))
	}
	return mux
}

// Status is the answer of /healthz, /readyz and /status.
type Status struct {
	Status string `json:"status"`
	// Checks has "ok" or the error of each check, by name.
	Checks map[string]string `json:"checks,omitempty"`
	// Version is the process's. Stages are its stages with their figures. Only /status has them.
	Version string    `json:"version,omitempty"`
	Stages  []Figures `json:"stages,omitempty"`
}

// Figures are figures of a stage, from its metrics; nil if it has none.
type Figures struct {
	Stage         string   `json:"stage,omitempty"`
	Lag           *float64 `json:"lagSeconds,omitempty"`
	OpenRuns      *float64 `json:"openRuns,omitempty"`
	OldestOpenRun *float64 `json:"oldestOpenRunSeconds,omitempty"`
	// DeadLetters counts those that the process has written.
	DeadLetters *float64 `json:"deadLetters,omitempty"`
}

// identity returns the version and the stages, without figures if the request lacks the token.
func (a *Admin) identity(r *http.Request) (string, []Figures, error) {
	stages := make([]Figures, len(a.stages))
	values := map[string]*float64{}
	if a.may(r) {
		families, err := a.gatherer.Gather()
		if err != nil {
			return "", nil, err
		}
		for _, f := range families {
			sum := 0.0
			for _, m := range f.GetMetric() {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
			values[f.GetName()] = &sum
		}
	}
	for i, name := range a.stages {
		of := "skein_" + name + "_"
		stages[i] = Figures{name, values[of+"lag_seconds"], values[of+"open_runs"], values[of+"oldest_open_run_seconds"],
			values[of+"dead_letters_total"]}
		if stages[i].DeadLetters == nil { // the indexer's
			stages[i].DeadLetters = values[of+"refused_total"]
		}
	}
	return a.version, stages, nil
}

func (a *Admin) serveAlive(w http.ResponseWriter, r *http.Request) {
	stuck := a.stuck(time.Now())
	if len(stuck) > 0 {
		if !a.may(r) {
			stuck = nil
		}
		writeStatus(w, http.StatusServiceUnavailable, Status{Status: "stuck", Checks: stuck})
		return
	}
	writeStatus(w, http.StatusOK, Status{Status: "ok"})
}

func (a *Admin) serveReady(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	state := a.state
	a.mu.Unlock()
	out, code := Status{Status: "ok"}, http.StatusOK
	if r.URL.Path == "/status" {
		var err error
		if out.Version, out.Stages, err = a.identity(r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	if state == "draining" {
		out.Status = state
		writeStatus(w, http.StatusServiceUnavailable, out)
		return
	}
	results := a.look(r.Context())
	out.Checks = make(map[string]string, len(results))
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

// result is the result of a check.
type result struct {
	*check
	err error
}

// look runs all checks concurrently and returns within lookTimeout, even if a check ignores its context: a Kafka client waits for
// the first answer on a new connection as long as its own settings allow.
func (a *Admin) look(ctx context.Context) []result {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	a.mu.Lock()
	checks := a.checks
	a.mu.Unlock()
	results, calls := make([]result, len(checks)), make([]<-chan singleflight.Result, len(checks))
	for i, c := range checks {
		results[i].check, calls[i] = c, c.begin(ctx)
	}
	for i, c := range calls {
		got := singleflight.Result{Err: errNoAnswer}
		select {
		case got = <-c:
		case <-ctx.Done():
			select {
			case got = <-c:
			default:
			}
		}
		results[i].err = got.Err
		a.failing.WithLabelValues(results[i].name).Set(map[bool]float64{true: 1}[got.Err != nil])
	}
	return results
}

// begin starts a call of the check, or joins the running one. The end of ctx does not end the call, since other callers may wait for it.
func (c *check) begin(ctx context.Context) <-chan singleflight.Result {
	return c.running.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
		defer cancel()
		return nil, c.ask(ctx)
	})
}

func writeStatus(w http.ResponseWriter, code int, s Status) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	// An error means that the client is gone.
	_ = json.NewEncoder(w).Encode(s)
}
