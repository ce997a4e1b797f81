package cli

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/admin"
	"github.com/skeinhq/skein/internal/app"
)

func TestHealth_SaysWhatTheStageSays(t *testing.T) {
	a := admin.New(prometheus.NewRegistry())
	server := httptest.NewServer(a.Handler())
	defer server.Close()
	var broken error
	a.AddCheck("store", func(context.Context) error { return broken })
	check := func(when string, code int, stdout, stderr string, args ...string) {
		t.Helper()
		gotOut, gotErr, got := skein(t, "", append([]string{"health", server.URL}, args...)...)
		if got != code || gotOut != stdout || !strings.Contains(gotErr, stderr) || (stderr == "") != (gotErr == "") {
			t.Errorf("%s: exit %d, stdout %q, stderr %q; want %d, %q, %q", when, got, gotOut, gotErr, code, stdout, stderr)
		}
	}
	check("starting", app.ExitFailed, "starting\n", "starting")
	a.Started()
	check("started", app.ExitDone, "ok\n", "")
	broken = errors.New("connection refused")
	check("without its store", app.ExitFailed, "not ready\n", "not ready; store: connection refused")
	check("alive all the same", app.ExitDone, "ok\n", "", "--live")
	check("for machines", app.ExitFailed, `{"status":"not ready","checks":{"store":"connection refused"}}`+"\n", "store", "--json")
}

func TestHealth_OneClearLineWhereNoStageAnswers(t *testing.T) {
	other := httptest.NewServer(nil)
	defer other.Close()
	for url, want := range map[string]string{
		"http://127.0.0.1:1": "no answer from http://127.0.0.1:1/readyz",
		other.URL:            "is not the admin address of a Skein stage (HTTP 404)",
		"127.0.0.1:8421":     "want http://HOST:PORT",
		"localhost:8421":     "want http://HOST:PORT",
	} {
		stdout, stderr, code := skein(t, "", "health", url)
		if code == app.ExitDone || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 || stdout != "" {
			t.Errorf("%s: exit %d, stdout %q, stderr %q; want %q", url, code, stdout, stderr, want)
		}
	}
}
