package admin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(body)
}

func TestAdmin_ReadinessFollowsTheProcess(t *testing.T) {
	var fault error
	a := New(prometheus.NewRegistry())
	a.AddCheck("broker", func(context.Context) error { return fault })
	h := a.Handler()
	expect := func(when string, code int, text string) {
		t.Helper()
		if got, body := get(t, h, "/readyz"); got != code || !strings.Contains(body, text) {
			t.Errorf("%s: got %d %s, want %d with %q", when, got, body, code, text)
		}
		if got, _ := get(t, h, "/healthz"); got != http.StatusOK {
			t.Errorf("%s: liveness is %d", when, got)
		}
	}
	expect("before start", 503, "starting")
	a.Started()
	expect("after start", 200, `"broker":"ok"`)
	fault = errors.New("connection refused")
	expect("broker away", 503, "connection refused")
	fault = nil
	expect("broker back", 200, "ok")
	extra := errors.New("login refused")
	a.AddOptional("extra", func(context.Context) error { return extra })
	expect("something that it can do without is away", 200, `{"status":"degraded","checks":{"broker":"ok","extra":"login refused"}}`)
	fault = errors.New("connection refused")
	expect("both are away", 503, "not ready")
	fault, extra = nil, nil
	a.AddRemark("reading", func(context.Context) error { return errors.New("something lies there") })
	expect("its work stands still for a reason of others", 200, `{"status":"degraded","checks":{"broker":"ok","extra":"ok","reading":"something lies there"}}`)
	a.Draining()
	expect("draining", 503, "draining")
	a.Started()
	expect("draining is for good", 503, "draining")
}

// A client may wait for an answer longer than it was told to. Readiness does not wait for it, and does not
// ask again meanwhile.
func TestAdmin_AnswersInTimeWhereACheckDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hangs = 7 * time.Second
		a := New(prometheus.NewRegistry())
		var calls atomic.Int32
		a.AddOptional("kafka", func(context.Context) error {
			calls.Add(1)
			time.Sleep(hangs)
			return errors.New("connection reset")
		})
		a.AddCheck("store", func(ctx context.Context) error {
			<-ctx.Done()
			return errors.New("the store is slow")
		})
		a.Started()
		for range 3 {
			began := time.Now()
			code, body := get(t, a.Handler(), "/readyz")
			if took := time.Since(began); took > lookTimeout {
				t.Errorf("it answers after %v", took)
			}
			for _, text := range []string{`"kafka":"no answer within 900ms"`, `"store":"the store is slow"`} {
				if code != 503 || !strings.Contains(body, text) {
					t.Errorf("%d %s, want %s", code, body, text)
				}
			}
		}
		time.Sleep(hangs)
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls of a check that has not answered the first", n)
		}
		get(t, a.Handler(), "/readyz")
		if n := calls.Load(); n != 2 {
			t.Errorf("%d calls, want another one once the first is over", n)
		}
		time.Sleep(hangs)
	})
}

func TestAdmin_ServesMetricsAndProfilesIfAsked(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "skein_test_things_total"})
	reg.MustRegister(c)
	c.Inc()
	a := New(reg)
	h := a.Handler()
	if code, body := get(t, h, "/metrics"); code != 200 || !strings.Contains(body, "skein_test_things_total 1") {
		t.Errorf("metrics: %d %s", code, body)
	}
	if code, _ := get(t, h, "/debug/pprof/"); code != 404 {
		t.Errorf("profiles that nobody asked for: %d", code)
	}
	a.ServeProfiles()
	if code, body := get(t, a.Handler(), "/debug/pprof/"); code != 200 || !strings.Contains(body, "goroutine") {
		t.Errorf("pprof: %d %s", code, body)
	}
	if code, _ := get(t, h, "/nothing"); code != 404 {
		t.Errorf("unknown path: %d", code)
	}
}

func TestAdmin_ATokenGuardsMetricsAndProfilesAndLeavesHealth(t *testing.T) {
	a := New(prometheus.NewRegistry())
	if err := a.RequireToken("short"); err == nil {
		t.Error("a token that can be guessed is taken")
	}
	const token = "0123456789abcdef"
	if err := a.RequireToken(token); err != nil {
		t.Fatal(err)
	}
	a.ServeProfiles()
	a.AddCheck("broker", func(context.Context) error { return errors.New("broker kafka-0 refuses the login") })
	a.Started()
	h := a.Handler()
	ask := func(path, authorization string) (int, string) {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/cmdline"} {
		for _, wrong := range []string{"", "Bearer", "Bearer ", "Bearer " + token + "x", token, "Basic " + token} {
			if code, _ := ask(path, wrong); code != http.StatusUnauthorized {
				t.Errorf("%s with %q: %d", path, wrong, code)
			}
		}
		if code, _ := ask(path, "Bearer "+token); code != http.StatusOK {
			t.Errorf("%s with the token: %d", path, code)
		}
	}
	if code, _ := ask("/healthz", ""); code != http.StatusOK {
		t.Errorf("health: %d", code)
	}
	if code, body := ask("/readyz", ""); code != http.StatusServiceUnavailable || strings.Contains(body, "kafka-0") {
		t.Errorf("readiness without the token: %d %s", code, body)
	}
	if _, body := ask("/readyz", "Bearer "+token); !strings.Contains(body, "kafka-0") {
		t.Errorf("readiness with the token: %s", body)
	}
}
