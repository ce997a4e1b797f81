package clickhousetest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/skeinhq/skein/test/parts/partstest"
)

// Restartable is an engine of a test's own. It can be killed and started again with its data, at the same address.
type Restartable struct {
	Server

	tb           testing.TB
	library, dir string
	child        *child
	target       atomic.Pointer[url.URL]
}

// StartRestartable starts an engine of the test's own, whichever server others use.
func StartRestartable(tb testing.TB) *Restartable {
	tb.Helper()
	partstest.SkipShort(tb, "ClickHouse")
	library, err := Library(context.Background())
	if u, none := err.(*unavailable); none { //nolint:errorlint // made here, never wrapped
		partstest.Skip(tb, "no ClickHouse engine to restart: "+u.Error())
	}
	if err != nil {
		tb.Fatal(err)
	}
	r := &Restartable{tb: tb, library: library, dir: tb.TempDir()}
	door := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(r.target.Load()) },
		// A server that is gone cuts connections, and answers nothing.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		Transport:    &http.Transport{DisableKeepAlives: true},
	})
	r.Server = Server{Addr: door.URL, Database: "restarted", Username: "default", Part: "chDB " + libraryVersion}
	r.Start()
	tb.Cleanup(func() {
		r.Kill()
		door.Close()
	})
	return r
}

// Kill ends the engine as kill -9 does.
func (r *Restartable) Kill() {
	r.tb.Helper()
	if err := r.child.cmd.Process.Kill(); err != nil {
		r.tb.Error(err)
	}
	_ = r.child.cmd.Wait() // it was killed
	_, _ = r.child.lifeline.Close(), r.child.stdout.Close()
}

// Start starts the engine again.
func (r *Restartable) Start() {
	r.tb.Helper()
	c, err := startChild(r.library, r.dir)
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(r.dir, engineLogFile))
		r.tb.Fatalf("starting the ClickHouse engine: %v\n%s", err, log)
	}
	r.child = c
	r.target.Store(&url.URL{Scheme: "http", Host: c.addr})
}

// StartAs is Start with a file of users, as ClickHouse's users.xml. The engine takes every caller for the user default. It refuses
// CREATE USER, ROLE and ROW POLICY. Later starts have the same file.
func (r *Restartable) StartAs(users string) {
	r.tb.Helper()
	file := filepath.Join(r.dir, "users.xml")
	config := "<clickhouse><users_config>" + file + "</users_config></clickhouse>"
	for path, text := range map[string]string{file: users, filepath.Join(r.dir, engineConfigFile): config} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			r.tb.Fatal(err)
		}
	}
	r.Start()
}
