package tenant_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/skeinhq/skein/internal/logtest"
	"github.com/skeinhq/skein/pkg/tenant"
)

// keyFile is a file of keys, and what watches it.
type keyFile struct {
	*tenant.KeyFile
	t    *testing.T
	path string
	log  *logtest.Log
	reg  *prometheus.Registry
}

// watched must be called in a bubble; the file is read on in the bubble's time.
func watched(t *testing.T, text string) *keyFile {
	t.Helper()
	k := &keyFile{t: t, path: filepath.Join(t.TempDir(), "keys.yaml"), log: &logtest.Log{}, reg: prometheus.NewRegistry()}
	if text != "" {
		k.write(text)
	}
	k.KeyFile = tenant.OpenKeyFile(k.path, slog.New(slog.NewTextHandler(k.log, nil)), k.reg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return k
}

func (k *keyFile) write(text string) {
	k.t.Helper()
	if err := os.WriteFile(k.path, []byte(text), 0o600); err != nil {
		k.t.Fatal(err)
	}
}

// later lets the watch see the file.
func (k *keyFile) later() {
	time.Sleep(3 * time.Second)
	synctest.Wait()
}

// as presents an Authorization header.
func (k *keyFile) as(header ...string) (tenant.Identity, error) {
	return k.Authenticate(&http.Request{Header: http.Header{"Authorization": header}})
}

func (k *keyFile) wants(when, key, tenantID string) {
	k.t.Helper()
	id, err := k.as("Bearer " + key)
	if tenantID == "" && !errors.Is(err, tenant.ErrUnauthenticated) || tenantID != "" && (err != nil || id.Tenant != tenantID) {
		k.t.Errorf("%s: the key is %q's, %v; want %q", when, id.Tenant, err, tenantID)
	}
	if err != nil && strings.Contains(err.Error(), key) {
		k.t.Errorf("%s: the error repeats the key", when)
	}
}

func entry(name, tenantID, key string) string {
	e := tenant.Entry(name, tenantID, []tenant.Scope{tenant.ScopeRead}, key)
	return "- {name: " + e.Name + ", tenant: " + e.Tenant + ", scopes: [read], sha256: '" + e.SHA256 + "'}\n"
}

func TestKeyFile_IsReadAgainWhenItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := tenant.NewKey(), tenant.NewKey()
		k := watched(t, "keys:\n"+entry("one", "acme", one))
		k.wants("at the start", one, "acme")
		k.wants("at the start", two, "")
		k.write("keys:\n" + entry("one", "acme", one) + entry("two", "umbrella", two))
		k.later()
		k.wants("with a second key", one, "acme")
		k.wants("with a second key", two, "umbrella")
		k.write("keys:\n" + entry("two", "umbrella", two))
		k.later()
		k.wants("with the first taken back", one, "")
		k.wants("with the first taken back", two, "umbrella")
		k.write("keys: []\n")
		k.later()
		k.wants("with none", two, "")
		if err := k.Ready(); err != nil {
			t.Errorf("an empty list is a list: %v", err)
		}
		if strings.Contains(k.log.String(), "sk_") || strings.Contains(k.log.String(), "level=ERROR") {
			t.Errorf("log: %s", k.log)
		}
	})
}

func TestKeyFile_ABrokenFileOpensNoDoorAndClosesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := tenant.NewKey(), tenant.NewKey()
		good := "keys:\n" + entry("one", "acme", one)
		k := watched(t, good)
		stale := func() float64 { return metric(t, k.reg, "skein_auth_key_file_stale") }
		for name, broken := range map[string]string{
			"cut":            "keys:\n" + entry("one", "acme", one) + entry("two", "acme", two)[:60],
			"unknown scope":  "keys:\n" + strings.Replace(entry("two", "acme", two), "[read]", "[everything]", 1),
			"empty":          "",
			"not YAML":       "keys: [",
			"without a hash": "keys:\n- {name: x, tenant: acme, scopes: [read], sha256: ''}\n",
		} {
			k.log.Take()
			k.write(broken)
			k.later()
			k.later()
			k.wants(name, one, "acme")
			k.wants(name, two, "")
			if n := strings.Count(k.log.String(), "level=ERROR"); n != 1 || stale() != 1 {
				t.Errorf("%s: %d lines, metric %v: %s", name, n, stale(), k.log)
			}
			k.write(good)
			k.later()
			if stale() != 0 {
				t.Errorf("%s: the metric stays raised", name)
			}
		}
		k.log.Take()
		if err := os.Remove(k.path); err != nil {
			t.Fatal(err)
		}
		k.later()
		k.wants("gone", one, "acme")
		if stale() != 1 || k.Ready() != nil || k.Stale() == nil {
			t.Errorf("metric %v, ready %v, stale %v", stale(), k.Ready(), k.Stale())
		}
		k.write("keys:\n" + entry("two", "acme", two))
		k.later()
		k.wants("back", one, "")
		k.wants("back", two, "acme")
		if stale() != 0 || k.Stale() != nil {
			t.Errorf("the metric stays raised, or %v", k.Stale())
		}
	})
}

func TestKeyFile_NobodyGetsInBeforeAFileWasRead(t *testing.T) {
	for name, text := range map[string]string{"no file": "", "a broken one": "keys: ["} {
		synctest.Test(t, func(t *testing.T) {
			one := tenant.NewKey()
			k := watched(t, text)
			k.wants(name, one, "")
			const said = "API keys were not read; nobody gets in until they are"
			if err := k.Ready(); err == nil || strings.Count(k.log.String(), "\n") != 1 || !strings.Contains(k.log.String(), said) {
				t.Errorf("%s: ready is %v, log %s", name, err, k.log)
			}
			k.write("keys:\n" + entry("one", "acme", one))
			k.later()
			k.wants("once it is there", one, "acme")
			if err := k.Ready(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestKeyFile_TakesOneBearerTokenOfTheRightForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := tenant.NewKey()
		// Somebody has written the hash of a password into the file: it does not get in.
		k := watched(t, "keys:\n"+entry("one", "acme", one)+entry("weak", "acme", "password"))
		for name, header := range map[string][]string{
			"nothing":         nil,
			"empty":           {""},
			"no scheme":       {one},
			"another scheme":  {"Basic " + one},
			"no token":        {"Bearer "},
			"a prefix":        {"Bearer " + one[:40]},
			"more than a key": {"Bearer " + one + "A"},
			"space behind":    {"Bearer " + one + " "},
			"two headers":     {"Bearer " + one, "Bearer " + one},
			"two in one":      {"Bearer " + one + ", Bearer " + one},
			"a password":      {"Bearer password"},
			"its hash":        {"Bearer " + tenant.Entry("x", "y", nil, one).SHA256},
		} {
			if id, err := k.as(header...); !errors.Is(err, tenant.ErrUnauthenticated) || id.Tenant != "" {
				t.Errorf("%s: %+v, %v", name, id, err)
			}
		}
		for _, scheme := range []string{"Bearer ", "bearer ", "BEARER  "} {
			id, err := k.as(scheme + one)
			if err != nil || id.Tenant != "acme" || !id.Allows(tenant.ScopeRead) || id.Allows(tenant.ScopePublish) {
				t.Errorf("%q: %+v, %v", scheme, id, err)
			}
		}
		want := `
# HELP skein_auth_requests_total Requests by their API key: known, expired, unknown, or none.
# TYPE skein_auth_requests_total counter
skein_auth_requests_total{outcome="expired"} 0
skein_auth_requests_total{outcome="known"} 3
skein_auth_requests_total{outcome="none"} 6
skein_auth_requests_total{outcome="unknown"} 6
`
		if err := testutil.GatherAndCompare(k.reg, strings.NewReader(want), "skein_auth_requests_total"); err != nil {
			t.Error(err)
		}
	})
}

func TestKeyFile_RefusesAKeyThatHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key, end := tenant.NewKey(), time.Now().Add(time.Minute)
		k := watched(t, "keys:\n"+strings.Replace(entry("short", "acme", key), "}", ", expires: "+end.Format(time.RFC3339)+"}", 1))
		if id, err := k.as("Bearer " + key); err != nil || !id.Expires.Equal(end) || id.Name != "short" {
			t.Fatalf("%+v, %v", id, err)
		}
		time.Sleep(time.Minute)
		if _, err := k.as("Bearer " + key); !errors.Is(err, tenant.ErrExpired) || !errors.Is(err, tenant.ErrUnauthenticated) {
			t.Errorf("the expired key is %v", err)
		}
	})
}

// metric sums a gauge or a counter over its labels.
func metric(t *testing.T, reg *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// Authorization may be somebody else's where Skein-Authorization is there; that one counts alone.
func TestKeyFile_TakesSkeinAuthorizationFirst(t *testing.T) {
	key, other := tenant.NewKey(), tenant.NewKey()
	path := filepath.Join(t.TempDir(), "keys.yaml")
	if err := tenant.AppendKey(path, tenant.Entry("a", "acme", tenant.Scopes(), key)); err != nil {
		t.Fatal(err)
	}
	keys := tenant.OpenKeyFile(path, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	for name, c := range map[string]struct {
		header http.Header
		known  bool
	}{
		"beside another's":    {http.Header{"Skein-Authorization": {"Bearer " + key}, "Authorization": {"Bearer theirs"}}, true},
		"alone":               {http.Header{"Skein-Authorization": {"bearer " + key}}, true},
		"unknown beside ours": {http.Header{"Skein-Authorization": {"Bearer " + other}, "Authorization": {"Bearer " + key}}, false},
		"empty beside ours":   {http.Header{"Skein-Authorization": {""}, "Authorization": {"Bearer " + key}}, false},
		"twice":               {http.Header{"Skein-Authorization": {"Bearer " + key, "Bearer " + key}}, false},
	} {
		id, err := keys.Authenticate(&http.Request{Header: c.header})
		if known := err == nil && id.Tenant == "acme"; known != c.known || (!known && !errors.Is(err, tenant.ErrUnauthenticated)) {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
	}
}
