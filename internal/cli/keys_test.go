package cli

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/tenant"
)

func TestKeys_NewPrintsTheKeyOnceAndKeepsItsHash(t *testing.T) {
	file := filepath.Join(t.TempDir(), "api-keys.yaml")
	stdout, stderr, code := skein(t, "", "keys", "new", "--tenant", "acme", "--scope", "publish,read", "--name", "agents", "--file", file)
	key := strings.TrimSuffix(stdout, "\n")
	if code != 0 || !tenant.IsKey(key) || strings.Contains(stderr, key) || !strings.Contains(stderr, "key agents of tenant acme") {
		t.Fatalf("exit %d, %q, %q", code, stdout, stderr)
	}
	if stdout, stderr, code := skein(t, "", "keys", "new", "--tenant", "umbrella", "--scope", "erase", "--file", file, "--json"); code != 0 || !strings.Contains(stdout, `"key":"sk_`) {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	text, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(text), key) {
		t.Errorf("the file holds the key: %v %s", err, text)
	}
	keys := tenant.OpenKeyFile(file, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	id, err := keys.Authenticate(&http.Request{Header: http.Header{"Authorization": {"Bearer " + key}}})
	if err != nil || id.Tenant != "acme" || !id.Allows(tenant.ScopePublish) || !id.Allows(tenant.ScopeRead) || id.Allows(tenant.ScopeErase) {
		t.Errorf("the key is %+v's, %v", id, err)
	}
	stdout, stderr, code = skein(t, "", "keys", "list", "--file", file)
	if code != 0 || strings.Count(stdout, "\n") != 3 || !strings.Contains(stdout, "agents  ") || !strings.Contains(stdout, "publish,read") ||
		strings.Contains(stdout, key) {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}
	if _, stderr, code := skein(t, "", "keys", "new", "--tenant", "acme", "--scope", "read", "--expires", "2099-01-02T03:04:05+01:00",
		"--file", file); code != 0 {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if stdout, _, _ := skein(t, "", "keys", "list", "--file", file); strings.Count(stdout, "never\n") != 2 ||
		!strings.Contains(stdout, "2099-01-02T02:04:05Z\n") {
		t.Errorf("the list does not say when keys end: %s", stdout)
	}
	for _, when := range []string{"soon", "2001-01-01T00:00:00Z", "-1h"} {
		if _, stderr, code := skein(t, "", "keys", "new", "--tenant", "acme", "--scope", "read", "--expires="+when, "--file", file); code != app.ExitUsage || !strings.Contains(stderr, "checking expires") {
			t.Errorf("--expires %s: exit %d, %s", when, code, stderr)
		}
	}
	if _, stderr, code := skein(t, "", "keys", "new", "--tenant", "acme", "--scope", "read", "--name", "agents", "--file", file); code != app.ExitFailed || !strings.Contains(stderr, "the name is taken") {
		t.Errorf("a name a second time: exit %d, %s", code, stderr)
	}
}

// The key comes from a file or a variable; it is in no argument and in no message.
func TestCommands_PresentAnAPIKey(t *testing.T) {
	key := tenant.NewKey()
	var got string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		if got != "Bearer "+key {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"status":401,"detail":"no credentials, or unknown ones"}`))
			return
		}
		_, _ = w.Write([]byte(`{"threads":[]}`))
	}))
	defer s.Close()
	file := writeFile(t, "key", key+"\n")
	command := func(environ []string, more ...string) (string, int) {
		t.Helper()
		var out, errs strings.Builder
		err := run(context.Background(), append([]string{"threads", "--url", s.URL}, more...), environ, strings.NewReader(""), &out, &errs)
		app.Report(&errs, "skein", err)
		return errs.String(), app.ExitCode(err)
	}
	for name, c := range map[string]struct {
		environ, args []string
		code          int
		want          string
	}{
		"none":                   {nil, nil, app.ExitFailed, "--api-key-file FILE (or SKEIN_API_KEY)"},
		"variable":               {[]string{"SKEIN_API_KEY=" + key}, nil, app.ExitDone, ""},
		"file":                   {nil, []string{"--api-key-file", file}, app.ExitDone, ""},
		"file named by variable": {[]string{"SKEIN_API_KEY_FILE=" + file}, nil, app.ExitDone, ""},
		"file over variable":     {[]string{"SKEIN_API_KEY=sk_other"}, []string{"--api-key-file", file}, app.ExitDone, ""},
		"unknown":                {[]string{"SKEIN_API_KEY=sk_other"}, nil, app.ExitFailed, "does not know this API key"},
		"not a header":           {[]string{"SKEIN_API_KEY=sk_with\ttab"}, nil, app.ExitUsage, "SKEIN_API_KEY does not hold an API key"},
	} {
		t.Run(name, func(t *testing.T) {
			stderr, code := command(c.environ, c.args...)
			if code != c.code || !strings.Contains(stderr, c.want) || strings.Contains(stderr, "sk_") {
				t.Errorf("exit %d, %s", code, stderr)
			}
		})
	}
}
