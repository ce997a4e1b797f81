package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/admin"
	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/dev"
)

// administration is the admin address of a process with these stages, and one check.
func administration(t *testing.T, broken *error, stages ...string) (*admin.Admin, string) {
	t.Helper()
	reg := prometheus.NewRegistry()
	for _, name := range stages {
		lag := prometheus.NewGauge(prometheus.GaugeOpts{Name: "skein_" + name + "_lag_seconds"})
		lag.Set(2.25)
		letters := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "skein_" + name + "_dead_letters_total"}, []string{"reason"})
		letters.WithLabelValues("no-run").Add(2)
		letters.WithLabelValues("malformed").Add(1)
		reg.MustRegister(lag, letters)
	}
	a := admin.New(reg)
	a.Identify("v1.2.3", stages...)
	a.AddCheck("store", func(context.Context) error { return *broken })
	server := httptest.NewServer(a.Handler())
	t.Cleanup(server.Close)
	return a, server.URL
}

func TestStatus_SaysWhatAProcessSays(t *testing.T) {
	var broken error
	a, url := administration(t, &broken, "compactor")
	check := func(when string, code int, stdout, stderr string, args ...string) {
		t.Helper()
		gotOut, gotErr, got := skein(t, "", append([]string{"status", url}, args...)...)
		if got != code || gotOut != strings.ReplaceAll(stdout, "URL", url) || !strings.Contains(gotErr, stderr) ||
			(stderr == "") != (gotErr == "") {
			t.Errorf("%s: exit %d, stdout %q, stderr %q; want %d, %q, %q", when, got, gotOut, gotErr, code, stdout, stderr)
		}
	}
	check("starting", app.ExitFailed, "compactor\tstarting\tv1.2.3\t2.3s\t\t\t3\tURL\n", "starting")
	a.Started()
	check("started", app.ExitDone, "compactor\tok\tv1.2.3\t2.3s\t\t\t3\tURL\n", "")
	broken = errors.New("connection refused")
	check("without its store", app.ExitFailed, "compactor\tnot ready\tv1.2.3\t2.3s\t\t\t3\tURL\n",
		"compactor: not ready; store: connection refused")
	check("alive all the same", app.ExitDone, "?\tok\t\t\t\t\t\tURL\n", "", "--live")
	check("for machines", app.ExitFailed, `{"stage":"compactor","lagSeconds":2.25,"deadLetters":3,"url":"URL","version":"v1.2.3","status":"not ready",`+
		`"checks":{"store":"connection refused"}}`+"\n", "store", "--json")
}

// The addresses of a context are those of an installation: each stage must be there, and ready.
func TestStatus_MissesAStage(t *testing.T) {
	var well, broken error
	front, ingestAndQuery := administration(t, &well, "query", "ingest")
	compactor, first := administration(t, &broken, "compactor")
	indexer, second := administration(t, &well, "indexer")
	for _, a := range []*admin.Admin{front, compactor, indexer} {
		a.Started()
	}
	home := t.TempDir()
	call := func(want int, words string) (string, string) {
		t.Helper()
		var stdout, stderr strings.Builder
		err := run(t.Context(), strings.Fields(words), []string{"HOME=" + home}, strings.NewReader(""), &stdout, &stderr)
		app.Report(&stderr, "skein", err)
		if code := app.ExitCode(err); code != want {
			t.Errorf("skein %s: exit %d, want %d: %s%s", words, code, want, stdout.String(), stderr.String())
		}
		return stdout.String(), stderr.String()
	}
	call(app.ExitDone, "context set bare --url https://skein.example")
	if _, stderr := call(app.ExitUsage, "status"); !strings.Contains(stderr, "context bare has no admin addresses: name those of its stages with --admin-url") {
		t.Errorf("a context without admin addresses: %s", stderr)
	}
	call(app.ExitDone, "status --admin-url "+first+","+second+","+ingestAndQuery)
	call(app.ExitDone, "context remove bare")
	call(app.ExitDone, "context set all --admin-url "+ingestAndQuery+","+first+","+second)
	stdout, _ := call(app.ExitDone, "status -o name")
	if stdout != "ingest\ncompactor\nindexer\nquery\n" {
		t.Errorf("stages: %q", stdout)
	}
	broken = errors.New("it has no partitions")
	if _, stderr := call(app.ExitFailed, "status"); !strings.Contains(stderr, "compactor: not ready; store: it has no partitions") {
		t.Errorf("a stage that is not ready: %s", stderr)
	}
	broken = nil
	stdout, stderr := call(app.ExitFailed, "status --json --admin-url "+first+",http://127.0.0.1:1")
	if strings.Count(stdout, `"status":"absent"`) != 3 || !strings.Contains(stdout, `"status":"no answer"`) ||
		!strings.Contains(stderr, "indexer: absent; query: absent (name the address of each stage") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("stages that are absent: %s%s", stdout, stderr)
	}
}

// A process that does not answer takes no time of the others.
func TestStatus_AsksAllProcessesAtOnce(t *testing.T) {
	var all sync.WaitGroup
	all.Add(2)
	process := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		all.Done()
		all.Wait()
		_, _ = io.WriteString(w, `{"status":"ok"}`)
	}))
	defer process.Close()
	if _, stderr, code := skein(t, "", "status", process.URL, process.URL); code != app.ExitDone {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// A name of several addresses is a process each, as the chart's Service of all admin ports.
func TestStatus_ShowsEachProcessOfAName(t *testing.T) {
	process := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Host, "stages.example:") { // an ingress goes by it
			_, _ = io.WriteString(w, `{"status":"ok"}`)
		}
	}))
	defer process.Close()
	at := process.URL
	look := func(context.Context, string, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")}, nil
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(at, "http://"), ":")
	var s server
	all, err := s.statuses(t.Context(), look, []string{"http://stages.example:" + port}, "/status", false)
	if err != nil || len(all) != 2 || all[0].URL != at || all[0].Status != "ok" ||
		all[1].URL != "http://127.0.0.2:"+port || all[1].Status != "no answer" {
		t.Errorf("got %+v, %v", all, err)
	}
}

// An open run is in the figures of skein dev.
func TestStatus_OfSkeinDev(t *testing.T) {
	s, err := dev.Start(t.Context(), devConfig(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }() // its tests look at that
	events := writeFile(t, "open.jsonl", `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`+"\n")
	if _, stderr, code := skein(t, "", "publish", events, "--url", s.URL()); code != app.ExitDone {
		t.Fatal(stderr)
	}
	stdout, stderr, code := skein(t, "", "status", "--json", "--admin-url", s.URL())
	var found stageStatus
	for line := range strings.Lines(stdout) {
		var one stageStatus
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatal(err)
		}
		if one.Stage == "compactor" {
			found = one
		}
	}
	if code != app.ExitDone || strings.Count(stdout, "\n") != 4 || found.OpenRuns == nil || *found.OpenRuns != 1 ||
		*found.OldestOpenRun <= 0 || *found.OldestOpenRun > 60 || found.Version == "" {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}

func TestStatus_OneClearLineWhereNoStageAnswers(t *testing.T) {
	other := httptest.NewServer(nil)
	defer other.Close()
	for url, want := range map[string]string{
		"http://127.0.0.1:1": "no answer from http://127.0.0.1:1/status",
		other.URL:            "is not the admin address of a Skein stage (HTTP 404)",
		"127.0.0.1:8421":     "want http://HOST:PORT",
		"localhost:8421":     "want http://HOST:PORT",
	} {
		_, stderr, code := skein(t, "", "status", url)
		if code == app.ExitDone || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit %d, stderr %q; want %q", url, code, stderr, want)
		}
	}
}

// Without URL, the first server that listens answers.
func TestStatus_FindsSkeinDev(t *testing.T) {
	var well error
	_, url := administration(t, &well, "query")
	var s server
	for _, urls := range [][]string{{"http://127.0.0.1:1", url}, {url, "http://127.0.0.1:1"}} {
		all, err := s.statuses(t.Context(), net.DefaultResolver.LookupNetIP, urls, "/status", true)
		if err != nil || len(all) != 1 || all[0].Stage != "query" {
			t.Errorf("%v: got %+v, %v", urls, all, err)
		}
	}
}
