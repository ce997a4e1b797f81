package cli

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/tenant"
)

// A named server is called with its own key where no flag or variable names another.
func TestContext_NamesAServerAndItsKey(t *testing.T) {
	key := tenant.NewKey()
	keyed := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+key {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = io.WriteString(w, `{"threads":[]}`) // a test's answer
	}))
	defer keyed.Close()
	open := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("a key goes to a server that it is not for")
		}
		_, _ = io.WriteString(w, `{"threads":[]}`) // as above
	}))
	defer open.Close()
	home := t.TempDir()
	call := func(want int, args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		err := run(t.Context(), args, []string{"HOME=" + home}, strings.NewReader(""), &stdout, &stderr)
		if code := app.ExitCode(err); code != want {
			t.Errorf("skein %v: exit %d, %v %s", args, code, err, stderr.String())
		}
		return stdout.String()
	}
	if got := call(0, "context"); got != "" {
		t.Errorf("without a file: %q", got)
	}
	call(0, "context", "set", "keyed", "--url", keyed.URL, "--api-key-file", writeFile(t, "key", key+"\n"))
	call(0, "context", "set", "open", "--url", open.URL)
	if got := call(0, "context"); !strings.HasPrefix(got, "*\tkeyed\t"+keyed.URL+"\t/") ||
		!strings.Contains(got, "\n\topen\t"+open.URL+"\t\n") {
		t.Errorf("contexts: %q", got)
	}
	call(0, "threads")
	call(0, "threads", "--context", "open")
	call(0, "threads", "--url", open.URL)
	call(app.ExitUsage, "threads", "--context", "nowhere")
	call(app.ExitUsage, "context", "use", "nowhere")
	call(0, "context", "use", "open")
	call(0, "threads")
	call(app.ExitFailed, "threads", "--url", keyed.URL)
	call(0, "context", "remove", "open")
	if got := call(0, "context"); strings.Contains(got, "open") || strings.Contains(got, "*") {
		t.Errorf("contexts: %q", got)
	}
	file := filepath.Join(home, ".config", "skein", "contexts.yaml")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	if err := os.WriteFile(file, []byte("contexts: {x: {uri: y}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	call(app.ExitUsage, "context")
}

// What goes to Kafka directly takes brokers and tenant from settings, as contexts hold neither.
func TestContext_CommandsOnKafkaTakeTheirTenantFromSettings(t *testing.T) {
	settings := writeFile(t, "settings.yaml", "tenant: acme\n")
	for _, args := range [][]string{
		{"refold", "my-thread"},
		{"dead-letters", "retry", "--all"},
		{"replay", "my-thread", "--to", "copy", "--yes"},
	} {
		for _, with := range []struct {
			args, environ []string
		}{
			{append(args, "--config", settings), nil},
			{args, []string{"SKEIN_CONFIG=" + settings}},
		} {
			var stdout, stderr bytes.Buffer
			err := run(t.Context(), with.args, with.environ, strings.NewReader(""), &stdout, &stderr)
			if code := app.ExitCode(err); code != app.ExitUsage || !strings.Contains(err.Error(), "--brokers") { // the tenant is there
				t.Errorf("skein %v with %v: exit %d, %v", with.args, with.environ, code, err)
			}
		}
	}
}
