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
	"time"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/ingest"
	"github.com/skeinhq/skein/pkg/query"
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
	if got := call(0, "context"); !strings.HasPrefix(got, "*\tkeyed\t"+keyed.URL+"\t"+keyed.URL+"\t/") ||
		!strings.Contains(got, "\n\topen\t"+open.URL+"\t"+open.URL+"\t\n") {
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
	open.Close()
	if err := run(t.Context(), []string{"threads"}, []string{"HOME=" + home}, strings.NewReader(""), io.Discard, io.Discard); err == nil ||
		!strings.HasSuffix(err.Error(), "; by context open") {
		t.Errorf("where the context's server does not answer: %v", err)
	}
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

// stages are ingest and query at two addresses, of which each knows the other's. Their routes answer with what they were asked.
func stages(t *testing.T) (publish, read string, calls func() string) {
	t.Helper()
	var called []string
	var fronts []*front.Front
	for stage, routes := range map[string][]front.Route{front.StageIngest: ingest.Routes(), front.StageQuery: query.Routes()} {
		for i := range routes {
			routes[i].Scope, routes[i].Params = "", nil
			routes[i].Serve = func(c *front.Call) error {
				called = append(called, stage+" "+c.R.Method)
				if c.R.PathValue("thread") == "nowhere" {
					return front.Refuse(http.StatusNotFound, "", "there is no such thread or run")
				}
				c.Send(http.StatusOK, "application/json", []byte(`{"threads":[],"status":"finished"}`))
				return nil
			}
		}
		f := &front.Front{Stage: stage, Routes: routes, Done: func(*front.Call, *front.Problem, time.Duration) {}}
		server := httptest.NewServer(f)
		t.Cleanup(server.Close)
		if fronts = append(fronts, f); stage == front.StageIngest {
			publish = server.URL
		} else {
			read = server.URL
		}
	}
	for _, f := range fronts {
		f.OtherURL = map[string]string{front.StageIngest: read, front.StageQuery: publish}[f.Stage]
	}
	return publish, read, func() string {
		defer func() { called = nil }()
		return strings.Join(called, ", ")
	}
}

// Each command calls the stage that serves it. One that calls the wrong stage, or knows no address of the right one, says what
// to pass; that there is no such thread is only what query says.
func TestContext_KnowsTwoAddresses(t *testing.T) {
	publish, read, calls := stages(t)
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	home := t.TempDir()
	events := writeFile(t, "run.jsonl", `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`+"\n")
	for _, c := range []struct {
		args, environ string
		code          int
		called, want  string
	}{
		{"context set two --publish-url " + publish + " --read-url " + read, "", app.ExitDone, "", ""},
		{"context", "", app.ExitDone, "", "*\ttwo\t" + publish + "\t" + read + "\t\n"},
		{"threads", "", app.ExitDone, "query GET", ""},
		{"publish --no-wait " + events, "", app.ExitDone, "ingest POST", ""},
		{"erase t --yes --no-wait", "", app.ExitDone, "query GET, ingest DELETE", ""},
		{"history nowhere", "", app.ExitNotFound, "query GET", "all threads: skein threads\n"},
		{"history nowhere --context two", "", app.ExitNotFound, "query GET", "all threads: skein threads --context two\n"},
		{"threads --read-url " + read, "", app.ExitDone, "query GET", ""},
		{"threads", "SKEIN_READ_URL=" + read, app.ExitDone, "query GET", ""},

		{"history t --url " + publish, "", app.ExitUsage, "", "this is the ingest stage: send this request to the query stage at " + read +
			" (HTTP 421): pass --publish-url " + publish + " --read-url " + read},
		{"tail t --url " + publish, "", app.ExitUsage, "", "this is the ingest stage"},
		{"replay t r --url " + publish, "", app.ExitUsage, "", "this is the ingest stage"},
		{"publish --no-wait " + events + " --url " + read, "", app.ExitUsage, "", "this is the query stage: send this request to the ingest stage at " +
			publish + " (HTTP 421): pass --publish-url " + publish + " --read-url " + read},
		{"history t --publish-url " + publish, "", app.ExitUsage, "", "the address of the query stage is missing: pass --read-url URL"},
		{"publish --no-wait " + events + " --read-url " + read, "", app.ExitUsage, "", "the address of the ingest stage is missing: pass --publish-url URL"},
		{"history t --context two --read-url " + publish, "", app.ExitUsage, "", "this is the ingest stage"},
		{"threads --url " + read, "SKEIN_PUBLISH_URL=" + publish, app.ExitDone, "query GET", ""},
		{"threads --read-url " + read, "SKEIN_URL=" + other.URL, app.ExitDone, "query GET", ""},
		{"threads --context two", "SKEIN_URL=" + other.URL, app.ExitDone, "query GET", ""},
		{"threads --url " + read, "SKEIN_CONTEXT=nowhere", app.ExitDone, "query GET", ""},
		{"context set x --url " + read + " --publish-url " + publish, "", app.ExitUsage, "",
			"pass either --url, or --publish-url and --read-url"},
		{"history t --url " + other.URL, "", app.ExitUsage, "", "the address is not that of Skein's HTTP API"},
		{"context set x --read-url skein.example", "", app.ExitUsage, "", "want http://HOST:PORT"},
		{"history t --read-url 127.0.0.1:1", "", app.ExitUsage, "", "want http://HOST:PORT"},
	} {
		var stdout, stderr bytes.Buffer
		err := run(t.Context(), strings.Fields(c.args), []string{"HOME=" + home, c.environ}, strings.NewReader(""), &stdout, &stderr)
		app.Report(&stdout, "skein", err)
		code, called := app.ExitCode(err), calls()
		if code != c.code || called != c.called || !strings.Contains(stdout.String(), c.want) {
			t.Errorf("skein %s with %s: exit %d, called %q: %s%s", c.args, c.environ, code, called, stdout.String(), stderr.String())
		}
	}
}
