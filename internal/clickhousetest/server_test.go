package clickhousetest

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/testcontainers/testcontainers-go.(*Reaper).connect.func1"))
}

func TestStart_GivesEachTestADatabaseOfItsOwn(t *testing.T) {
	var first string
	t.Run("one", func(t *testing.T) {
		s := Start(t)
		first = s.Database
		if err := s.Open(t).Exec(t.Context(), "CREATE TABLE x (a UInt8) ENGINE = MergeTree ORDER BY a"); err != nil {
			t.Fatal(err)
		}
	})
	if first == "" {
		t.Skip("there is no ClickHouse")
	}
	s := Start(t)
	if s.Database == first || !strings.Contains(s.Part, "ClickHouse ") {
		t.Errorf("second database %q after %q, on %q", s.Database, first, s.Part)
	}
	var tables, databases uint64
	c := s.Open(t)
	if err := c.QueryRow(t.Context(), "SELECT count() FROM system.tables WHERE database = currentDatabase()").Scan(&tables); err != nil || tables != 0 {
		t.Errorf("%d tables in a new database, %v", tables, err)
	}
	if err := c.QueryRow(t.Context(), "SELECT count() FROM system.databases WHERE name = ?", first).Scan(&databases); err != nil ||
		databases != 0 {
		t.Errorf("the first test's database is still there, %v", err)
	}
}

func TestFromEnvironment_RefusesWhatIsNoAddress(t *testing.T) {
	for _, c := range []struct{ value, addr, user, password string }{
		{"http://u:p@db:8123", "http://db:8123", "u", "p"},
		{"clickhouse://db:9000", "clickhouse://db:9000", "", ""},
		{"db:9000", "", "", ""},
		{"ftp://db:9000", "", "", ""},
		{"http://", "", "", ""},
	} {
		t.Setenv("SKEIN_TEST_CLICKHOUSE", c.value)
		s, err := fromEnvironment()
		if (err == nil) != (c.addr != "") || s.Addr != c.addr || s.Username != c.user || s.Password != c.password {
			t.Errorf("%q: %+v, %v", c.value, s, err)
		}
	}
}
