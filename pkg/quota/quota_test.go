package quota_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/skeinhq/skein/internal/logtest"
	"github.com/skeinhq/skein/pkg/quota"
)

func open(t *testing.T, cfg quota.Config) *quota.Quotas {
	t.Helper()
	if cfg.Replicas == 0 {
		cfg.Replicas = 1
	}
	q, err := quota.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestQuotas_AnswerSaysWhichLimitAndWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, quota.Config{Stage: quota.Limits{RequestsPerSecond: 2, ConcurrentReads: 1}})
		w := httptest.NewRecorder()
		done, ok := admit(q, w, "acme", quota.Requests, quota.Reads)
		if !ok {
			t.Fatalf("the first request is refused: %s", w.Body)
		}
		if got, want := w.Header().Get("RateLimit-Policy"), `"requests_per_second";q=20;w=10, "concurrent_reads";q=1;qu="concurrent-requests"`; got != want {
			t.Errorf("RateLimit-Policy is %s, want %s", got, want)
		}
		if got, want := w.Header().Get("RateLimit"), `"requests_per_second";r=19;t=1, "concurrent_reads";r=0`; got != want {
			t.Errorf("RateLimit is %s, want %s", got, want)
		}

		w = httptest.NewRecorder()
		if _, ok := admit(q, w, "acme", quota.Requests, quota.Reads); ok {
			t.Fatal("a second read is admitted beside the first")
		}
		if w.Code != http.StatusTooManyRequests {
			t.Errorf("the answer is %d", w.Code)
		}
		if !strings.Contains(w.Body.String(), "concurrent_reads is 1") {
			t.Errorf("the answer is %s", w.Body)
		}
		if _, ok := admit(q, httptest.NewRecorder(), "umbrella", quota.Requests, quota.Reads); !ok {
			t.Error("another tenant pays for it")
		}
		done()
		for range 18 {
			done, ok := admit(q, httptest.NewRecorder(), "acme", quota.Requests, quota.Reads)
			if !ok {
				t.Fatal("refused below the limit")
			}
			done()
		}
		w = httptest.NewRecorder()
		if _, ok := admit(q, w, "acme", quota.Requests); ok || !strings.Contains(w.Body.String(), "requests_per_second is 2") {
			t.Errorf("the 21st request of ten seconds' worth is answered %d %s", w.Code, w.Body)
		}
		time.Sleep(500 * time.Millisecond)
		if _, ok := admit(q, httptest.NewRecorder(), "acme", quota.Requests); !ok {
			t.Error("refused after the time that was said")
		}
	})
}

func TestQuotas_ReplicasShareALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, quota.Config{Replicas: 4, Stage: quota.Limits{RequestsPerSecond: 2, ConcurrentStreams: 5}})
		requests, streams := 0, 0
		for range 100 {
			if _, ok := admit(q, httptest.NewRecorder(), "acme", quota.Requests); ok {
				requests++
			}
			if _, ok := admit(q, httptest.NewRecorder(), "acme", quota.Streams); ok {
				streams++
			}
		}
		if requests != 5 || streams != 2 {
			t.Errorf("one of four replicas admits %d requests and %d streams, want a quarter of 20 and of 5, rounded up", requests, streams)
		}
	})
}

func TestTenant_WaitSlowsDownToTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tenant := open(t, quota.Config{Stage: quota.Limits{BytesPerSecond: 100}}).Tenant("acme")
		began := time.Now()
		for range 20 {
			if err := tenant.Wait(t.Context(), quota.Bytes, 100, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("2000 bytes at 100 a second took %v behind a bucket of 1000", took)
		}
		// More than the bucket holds: let through once it is full, and paid for.
		began = time.Now()
		for range 2 {
			if err := tenant.Wait(t.Context(), quota.Bytes, 3000, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != 40*time.Second {
			t.Errorf("twice 3000 bytes at 100 a second took %v", took)
		}
		var exceeded *quota.ExceededError
		if err := tenant.Wait(t.Context(), quota.Bytes, 1, time.Second); !errors.As(err, &exceeded) || exceeded.Kind != quota.Bytes ||
			exceeded.RetryAfter != 20*time.Second+10*time.Millisecond {
			t.Errorf("beyond the patience: %v, %+v", err, exceeded)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := tenant.Wait(ctx, quota.Bytes, 1, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait that is broken off: %v", err)
		}
	})
}

func TestQuotas_FollowTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "quotas.yaml")
		write(t, path, "default:\n  requests_per_second: 1\n  open_runs: 20\ntenants:\n  acme:\n    concurrent_streams: 3\n    max_event_bytes: 1000\n    open_run_bytes: 5000\n")
		reg := prometheus.NewRegistry()
		var log logtest.Log // the quotas write on while it is read
		q := open(t, quota.Config{Path: path, Registerer: reg, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Stage: quota.Limits{ConcurrentStreams: 7, ConcurrentReads: 9}})
		if got, want := q.Tenant("acme").Limits(),
			(quota.Limits{RequestsPerSecond: 1, ConcurrentStreams: 3, ConcurrentReads: 9, MaxEventBytes: 1000, OpenRuns: 20,
				OpenRunBytes: 5000}); got != want {
			t.Errorf("acme has %+v, want %+v", got, want)
		}
		if got, want := q.Tenant("umbrella").Limits(),
			(quota.Limits{RequestsPerSecond: 1, ConcurrentStreams: 7, ConcurrentReads: 9, OpenRuns: 20}); got != want {
			t.Errorf("umbrella has %+v, want %+v", got, want)
		}
		if got, want := q.Limits("acme"), q.Tenant("acme").Limits(); got != want {
			t.Errorf("acme has %+v, want %+v", got, want)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- q.Run(ctx) }()

		streams := q.Tenant("acme")
		if _, err := streams.Admit(nil, quota.Streams); err != nil {
			t.Fatal(err)
		}
		write(t, path, "tenants:\n  acme:\n    concurrent_streams: 1\n")
		time.Sleep(3 * time.Second)
		if _, err := streams.Admit(nil, quota.Streams); err == nil {
			t.Error("a second stream is admitted after the limit became 1")
		}
		write(t, path, "tenants:\n  acme:\n    concurrent_stream: 100\n")
		time.Sleep(5 * time.Second)
		if got := q.Tenant("acme").Limits().ConcurrentStreams; got != 1 {
			t.Errorf("a file with an unknown key changes the limit to %d", got)
		}
		if n := strings.Count(log.String(), "no limit \\\"concurrent_stream\\\""); n != 1 {
			t.Errorf("what is wrong is logged %d times:\n%s", n, &log)
		}
		if err := testutil.GatherAndCompare(reg, strings.NewReader(`# HELP skein_quota_file_stale 1 while the quota file is missing or invalid; the previous quotas stay in force.
# TYPE skein_quota_file_stale gauge
skein_quota_file_stale 1
# HELP skein_quota_refused_total Requests and events that were refused because a tenant's quota was used up, by limit.
# TYPE skein_quota_refused_total counter
skein_quota_refused_total{limit="bytes_per_second"} 0
skein_quota_refused_total{limit="concurrent_reads"} 0
skein_quota_refused_total{limit="concurrent_streams"} 1
skein_quota_refused_total{limit="events_per_second"} 0
skein_quota_refused_total{limit="requests_per_second"} 0
# HELP skein_quota_reloads_total Changes of the quota file, by outcome; a refused change has no effect.
# TYPE skein_quota_reloads_total counter
skein_quota_reloads_total{outcome="loaded"} 1
skein_quota_reloads_total{outcome="refused"} 1
`)); err != nil {
			t.Error(err)
		}
		write(t, path, "default: {}\n")
		time.Sleep(3 * time.Second)
		if got := streams.Limits().ConcurrentStreams; got != 7 {
			t.Errorf("without an entry acme has %d streams, want the stage's 7", got)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// What is surprising about limits is said when they come into force, at the start and later.
func TestQuotas_WarnOfWhatIsSurprising(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "quotas.yaml")
		write(t, path, "default:\n  open_runs: 3\ntenants:\n  acme:\n    open_runs: 7\n  as-usual: {}\n")
		var log logtest.Log // the quotas write on while it is read
		q := open(t, quota.Config{Path: path, Logger: slog.New(slog.NewTextHandler(&log, nil)), Remark: func(l quota.Limits) string {
			if l.OpenRuns < 10 {
				return fmt.Sprint("small-", l.OpenRuns)
			}
			return ""
		}})
		said := func() (all []string) {
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, "level=WARN") {
					all = append(all, line[strings.Index(line, "tenant="):len(line)-1])
				}
			}
			return all
		}
		want := []string{"tenant=default remark=small-3", "tenant=acme remark=small-7"}
		if got := said(); !slices.Equal(got, want) {
			t.Errorf("at the start it says %q, want %q", got, want)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- q.Run(ctx) }()
		write(t, path, "default:\n  open_runs: 30\ntenants:\n  acme:\n    open_runs: 8\n")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := said(); !slices.Equal(got, append(want, "tenant=acme remark=small-8")) {
			t.Errorf("of a change it says %q", got)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestQuotas_ForgetIdleTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, quota.Config{Stage: quota.Limits{ConcurrentStreams: 1}})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- q.Run(ctx) }()
		idle, busy := q.Tenant("idle"), q.Tenant("busy")
		done, err := busy.Admit(nil, quota.Requests)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Minute)
		if q.Tenant("idle") == idle || q.Tenant("busy") != busy {
			t.Error("an idle tenant must be forgotten, one with a request under way must not")
		}
		done()
		time.Sleep(11 * time.Minute)
		if q.Tenant("busy") == busy {
			t.Error("a tenant must be forgotten once its last request is long over")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestOpen_RefusesWhatItDoesNotUnderstand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quotas.yaml")
	for name, text := range map[string]string{
		"empty":                   "",
		"an unknown limit":        "default:\n  requests: 5\n",
		"a tenant twice":          "tenants:\n  a: {}\n  a: {}\n",
		"below zero":              "default:\n  requests_per_second: -1\n",
		"too much":                "default:\n  bytes_per_second: 9223372036854775807\n",
		"a fraction":              "default:\n  requests_per_second: 0.5\n",
		"a tenant without a name": "tenants:\n  '': {}\n",
		"two documents":           "default: {}\n---\ndefault: {}\n",
	} {
		write(t, path, text)
		if _, err := quota.Open(quota.Config{Path: path, Replicas: 1}); !errors.Is(err, quota.ErrFile) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := quota.Open(quota.Config{Path: path + "-", Replicas: 1}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := quota.Open(quota.Config{}); err == nil || !strings.Contains(err.Error(), "replicas") {
		t.Errorf("no replicas: %v", err)
	}
}

// admit is the door of a request as stages have it.
func admit(q *quota.Quotas, w http.ResponseWriter, tenant string, of ...quota.Kind) (done func(), ok bool) {
	done, err := q.Tenant(tenant).Admit(w.Header(), of...)
	if exceeded := new(quota.ExceededError); errors.As(err, &exceeded) {
		http.Error(w, exceeded.Error(), http.StatusTooManyRequests)
		return nil, false
	}
	return done, true
}
