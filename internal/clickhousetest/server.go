package clickhousetest

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/skeinhq/skein/test/parts/partstest"
)

// Timeout bounds what this package does on a server beside starting it.
const Timeout = 30 * time.Second

// Server is a database on a real ClickHouse.
type Server struct {
	// Addr is http://HOST:PORT or clickhouse://HOST:PORT.
	Addr               string
	Database           string
	Username, Password string
	// Part says what answers, such as "chDB 26.7.3-stable.1, ClickHouse 26.7.3.1".
	Part string
}

// Start returns an empty database, which is dropped when the test ends, after what the test has
// registered later: stores that are closed in a Cleanup are closed first.
func Start(tb testing.TB) Server {
	tb.Helper()
	s := shared(tb)
	s.Database = "test_" + strings.ToLower(rand.Text())
	run(tb, s, "CREATE DATABASE "+s.Database)
	tb.Cleanup(func() { run(tb, s, "DROP DATABASE IF EXISTS "+s.Database) })
	tb.Logf("on %s, database %s", s.Part, s.Database)
	return s
}

// Open returns a connection to the database, which is closed when the test ends.
func (s Server) Open(tb testing.TB) driver.Conn {
	tb.Helper()
	c, err := s.open()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Errorf("closing the connection to ClickHouse: %v", err)
		}
	})
	return c
}

// Flags are those of a command that name the database. A password is in a file of the test's.
func (s Server) Flags(tb testing.TB) []string {
	tb.Helper()
	flags := []string{"--clickhouse", s.Addr, "--clickhouse-database", s.Database, "--clickhouse-user", s.Username}
	if s.Password == "" { // an empty file is refused
		return flags
	}
	file := filepath.Join(tb.TempDir(), "password")
	if err := os.WriteFile(file, []byte(s.Password+"\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
	return append(flags, "--clickhouse-password-file", file)
}

func (s Server) open() (driver.Conn, error) {
	scheme, host, _ := strings.Cut(s.Addr, "://")
	o := &clickhouse.Options{
		Addr:        []string{host},
		Auth:        clickhouse.Auth{Database: s.Database, Username: s.Username, Password: s.Password},
		DialTimeout: Timeout,
	}
	if scheme == "http" {
		o.Protocol = clickhouse.HTTP
	}
	c, err := clickhouse.Open(o)
	if err != nil {
		return nil, fmt.Errorf("connecting to ClickHouse: %w", err)
	}
	return c, nil
}

// run runs a statement outside of the test's database.
func run(tb testing.TB, s Server, statement string) {
	tb.Helper()
	s.Database = ""
	c, err := s.open()
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), Timeout) // also used when the test's own has ended
	defer cancel()
	if err := c.Exec(ctx, statement); err != nil {
		tb.Errorf("running %q on %s: %v%s", statement, s.Part, err, engineLog())
	}
	if err := c.Close(); err != nil {
		tb.Errorf("closing the connection to ClickHouse: %v", err)
	}
}

// unavailable says why a way to get a server is not open, and what to do about it.
type unavailable struct{ reasons []string }

func (u *unavailable) Error() string { return strings.Join(u.reasons, "; ") }

var (
	startOnce   sync.Once
	startServer Server
	errStart    error
)

// shared returns the server of this process, or ends the test.
func shared(tb testing.TB) Server {
	tb.Helper()
	partstest.SkipShort(tb, "ClickHouse")
	startOnce.Do(func() { startServer, errStart = find() })
	if errStart == nil {
		return startServer
	}
	u, none := errStart.(*unavailable) //nolint:errorlint // made here, never wrapped
	if !none {
		tb.Fatal(errStart)
	}
	msg := "no ClickHouse to test with: " + u.Error() +
		". Install Docker, or Node.js with npm on linux/amd64, or set SKEIN_TEST_CLICKHOUSE=http://user:password@host:8123"
	partstest.Skip(tb, msg)
	return Server{}
}

// find tries the ways in their order. A way that is there and fails is an error; it does not fall
// through to the next, which would hide it.
func find() (Server, error) {
	u := &unavailable{}
	for _, way := range []func() (Server, error){fromEnvironment, fromDocker, fromEngine} {
		s, err := way()
		if no, ok := err.(*unavailable); ok { //nolint:errorlint // made here, never wrapped
			u.reasons = append(u.reasons, no.reasons...)
			continue
		}
		if err != nil {
			return Server{}, err
		}
		version, err := askVersion(s)
		if err != nil {
			return Server{}, fmt.Errorf("asking %s for its version: %w%s", s.Part, err, engineLog())
		}
		s.Part += ", ClickHouse " + version
		return s, nil
	}
	return Server{}, u
}

func none(format string, args ...any) error {
	return &unavailable{reasons: []string{fmt.Sprintf(format, args...)}}
}

func askVersion(s Server) (version string, err error) {
	c, err := s.open()
	if err != nil {
		return "", err
	}
	defer func() {
		if e := c.Close(); err == nil {
			err = e
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	err = c.QueryRow(ctx, "SELECT version()").Scan(&version)
	return version, err
}
