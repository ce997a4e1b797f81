package clickhouse

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/store/storetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/testcontainers/testcontainers-go.(*Reaper).connect.func1"))
}

// optionsFor returns the options for a new database.
func optionsFor(tb testing.TB) Options {
	tb.Helper()
	s := clickhousetest.Start(tb)
	return Options{Addrs: []string{s.Addr}, Database: s.Database, Username: s.Username, Password: s.Password}
}

// contentsOf reads the contents of a run of thread "th" by its row.
func contentsOf(tb testing.TB, s *Store, run string) (map[string]store.Content, error) {
	tb.Helper()
	runs, err := s.Thread(tb.Context(), "t", "th")
	if err != nil {
		return nil, err
	}
	return s.Contents(tb.Context(), "t", "th", slices.DeleteFunc(runs, func(r store.Run) bool { return r.RunID != run }))
}

// connect returns a store that is closed when the test ends.
func connect(tb testing.TB, o Options) *Store {
	tb.Helper()
	s, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// open returns a new store, migrated.
func open(tb testing.TB) *Store {
	tb.Helper()
	s := connect(tb, optionsFor(tb))
	if err := s.Migrate(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestStore_FulfilsTheContract(t *testing.T) {
	// A statement takes milliseconds here, and the suite's histories make thousands; -rapid.checks=100 takes as many as SQLite's tests do.
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("5"); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t)
	storetest.Run(t, func(tb testing.TB) storetest.Store {
		empty(tb, s)
		return s
	})
}

// empty removes all rows, which takes a tenth of what a new database does.
func empty(tb testing.TB, s *Store) {
	tb.Helper()
	tables := text(tb, s, "SELECT arrayStringConcat(groupArray(name), ',') FROM system.tables WHERE database = currentDatabase() AND engine LIKE '%MergeTree' AND name != 'schema_migrations'")
	for table := range strings.SplitSeq(tables, ",") {
		if err := s.exec(tb.Context(), "TRUNCATE TABLE "+table); err != nil {
			tb.Fatal(err)
		}
	}
}
