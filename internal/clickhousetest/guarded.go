package clickhousetest

import (
	"crypto/rand"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// Guarded is a database whose user must give a password, which the test can change.
type Guarded struct {
	Server
	tb       testing.TB
	admin    Server
	password atomic.Pointer[string] // what the door asks for; nil where the server asks by itself
}

// StartGuarded is Start with such a user. A server that keeps users asks by itself. The embedded engine
// takes everybody for its one user, whatever they say, so that there a door before it asks, in the
// server's words.
func StartGuarded(tb testing.TB) *Guarded {
	tb.Helper()
	g := &Guarded{Server: Start(tb), tb: tb}
	g.admin = g.Server
	g.Username, g.Password = "test_"+strings.ToLower(rand.Text()), rand.Text()
	if strings.HasPrefix(g.Part, "chDB") {
		first := g.Password
		g.password.Store(&first)
		g.Addr = g.door()
		return g
	}
	run(tb, g.admin, "CREATE USER "+g.Username+" IDENTIFIED BY '"+g.Password+"'")
	tb.Cleanup(func() { run(tb, g.admin, "DROP USER "+g.Username) })
	run(tb, g.admin, "GRANT ALL ON "+g.Database+".* TO "+g.Username)
	run(tb, g.admin, "GRANT SELECT ON system.* TO "+g.Username)
	return g
}

// SetPassword changes the password at the server.
func (g *Guarded) SetPassword(password string) {
	g.tb.Helper()
	if g.password.Load() != nil {
		g.password.Store(&password)
		return
	}
	run(g.tb, g.admin, "ALTER USER "+g.Username+" IDENTIFIED BY '"+password+"'")
}

// door stands before the engine and lets in who names the user and the password, in either way that
// ClickHouse's HTTP interface takes. It returns its address.
func (g *Guarded) door() string {
	g.tb.Helper()
	behind, err := url.Parse(g.Addr)
	if err != nil {
		g.tb.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(behind)
	transport := &http.Transport{}
	proxy.Transport = transport
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, ok := r.BasicAuth()
		if !ok {
			user, password = r.Header.Get("X-ClickHouse-User"), r.Header.Get("X-ClickHouse-Key")
		}
		if user != g.Username || password != *g.password.Load() {
			w.Header().Set("X-ClickHouse-Exception-Code", "516")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "Code: 516. DB::Exception: "+user+": Authentication failed: password is incorrect, or there is no user with such name. (AUTHENTICATION_FAILED)\n")
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	g.tb.Cleanup(func() {
		door.Close()
		transport.CloseIdleConnections()
	})
	return door.URL
}
