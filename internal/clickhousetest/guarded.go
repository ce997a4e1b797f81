package clickhousetest

import (
	"crypto/rand"
	"errors"
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
// takes everybody for its one user, whatever they say, so that there a Door before it asks.
func StartGuarded(tb testing.TB) *Guarded {
	tb.Helper()
	g := &Guarded{Server: Start(tb), tb: tb}
	g.admin = g.Server
	g.Username, g.Password = "test_"+strings.ToLower(rand.Text()), rand.Text()
	if strings.HasPrefix(g.Part, "chDB") {
		first := g.Password
		g.password.Store(&first)
		g.Addr = Door(tb, g.Addr, func(s Statement) error {
			if s.User != g.Username || s.Password != *g.password.Load() {
				return errors.New(s.User + ": Authentication failed: password is incorrect, or there is no user with such name")
			}
			return nil
		})
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
