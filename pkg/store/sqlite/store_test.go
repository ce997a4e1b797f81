package sqlite

import (
	"database/sql"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/store/storetest"
	"github.com/skeinhq/skein/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore_FulfilsTheContract(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) storetest.Store {
		return open(tb, filepath.Join(tb.TempDir(), "store.db"))
	})
}

func TestStore_KeepsWhatWasWrittenOverARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a folder #1? 100% é", "store.db")
	if _, err := Open(t.Context(), path); err == nil {
		t.Fatal("a folder that is not there is no error")
	}
	path = filepath.Join(t.TempDir(), "store #1? 100% é.db")
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	entry := store.Entry{Version: 3, Tenant: "t", ThreadID: "th", RunID: "r",
		Run: &record.Run{Status: record.StatusFinished, Lineage: record.Lineage{ParentBy: record.ParentNone}}}
	if err := s.Write(t.Context(), []store.Entry{entry}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(strings.ReplaceAll(path, "?", "[?]")); len(files) != 1 {
		t.Errorf("the file is not where it was asked for: %v", files)
	}
	r, err := open(t, path).Run(t.Context(), "t", "th", "r")
	if err != nil || r.Version != 3 {
		t.Errorf("after a restart: version %d, error %v", r.Version, err)
	}
}

func TestStore_HasTheTraceOfARunInAColumn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	entry := store.Entry{Tenant: "t", ThreadID: "th", RunID: "r", Run: &record.Run{Status: record.StatusFinished,
		Lineage: record.Lineage{ParentBy: record.ParentNone}, Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
	if err := s.Write(t.Context(), []store.Entry{entry}); err != nil {
		t.Fatal(err)
	}
	var id string
	if err := s.read.QueryRowContext(t.Context(), "SELECT trace_id FROM runs").Scan(&id); err != nil || id != entry.Run.TraceID() || id == "" {
		t.Errorf("trace is %q, %v", id, err)
	}
}

// What a row knows beside its record goes with the run.
func TestStore_FactsAreDeletedWithTheirRun(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "store.db"))
	call := `{"id":"a","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"search","arguments":"{}"}}]}`
	entry := store.Entry{Version: 3, Tenant: "t", ThreadID: "th", RunID: "r", Run: &record.Run{
		Status: record.StatusFinished, Lineage: record.Lineage{ParentBy: record.ParentNone},
		Messages: []agui.Message{{ID: "a", Role: agui.RoleAssistant, Raw: json.RawMessage(call)}},
	}}
	rows := func(want int) {
		t.Helper()
		var n int
		if err := s.read.QueryRowContext(t.Context(), "SELECT count(*) FROM tool_calls").Scan(&n); err != nil || n != want {
			t.Errorf("%d tool calls, %v; want %d", n, err, want)
		}
	}
	for _, write := range []struct {
		run  *record.Run
		want int
	}{{entry.Run, 1}, {entry.Run, 1}, {nil, 0}} {
		entry.Version, entry.Run = entry.Version+1, write.run
		if err := s.Write(t.Context(), []store.Entry{entry}); err != nil {
			t.Fatal(err)
		}
		rows(write.want)
	}
}

// Rows that are there stay, and the tables of later migrations come to them.
func TestMigrate_UpgradesAnEarlierSchema(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	ms, err := store.Migrations(schemas.SQLite, "sqlite")
	if err != nil {
		t.Fatal(err)
	}
	if done, err := s.migrateNext(t.Context(), ms[:1]); err != nil || done {
		t.Fatalf("migrating to the first version: done %v, %v", done, err)
	}
	if err := s.Ping(t.Context()); err == nil {
		t.Error("Ping of the first version succeeds")
	}
	if _, err := s.write.ExecContext(t.Context(), "INSERT INTO erasures VALUES ('t', 'th', 7, 0, 1)"); err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e, err := s.Erasure(t.Context(), "t", "th"); err != nil || e.Below != 7 {
		t.Errorf("a row from before: %+v, %v", e, err)
	}
	if _, err := s.Details(t.Context(), "t", "th"); err != nil {
		t.Error(err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStore_RefusesANewerSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	if _, err := s.write.ExecContext(t.Context(), "PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); !errors.Is(err, store.ErrSchema) {
		t.Errorf("error %v, want ErrSchema", err)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, store.ErrSchema) {
		t.Errorf("Ping says %v, want ErrSchema", err)
	}
}

func TestStore_SyncsEveryCommit(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "store.db"))
	for _, c := range []struct {
		db           *sql.DB
		pragma, want string
	}{
		{s.write, "synchronous", "2"}, // FULL
		{s.write, "journal_mode", "wal"},
		{s.read, "journal_mode", "wal"},
		{s.read, "query_only", "1"},
	} {
		var got string
		if err := c.db.QueryRowContext(t.Context(), "PRAGMA "+c.pragma).Scan(&got); err != nil || got != c.want {
			t.Errorf("%s = %q, %v; want %s", c.pragma, got, err, c.want)
		}
	}
}

// The statements of every answer must not read whole tables: each step is a search by index, in the
// order of the answer.
func TestStatements_UseAnIndex(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "store.db"))
	named := []any{sql.Named("tenant", "t"), sql.Named("after", ""), sql.Named("from", ""), sql.Named("to", "x"),
		sql.Named("since", 0), sql.Named("status", ""), sql.Named("agent", ""), sql.Named("limit", 10),
		sql.Named("words", `["a"]`), sql.Named("archived", "no")}
	byTime := []any{named[0], named[2], named[3], sql.Named("words", ""), sql.Named("archived", "no"), sql.Named("since", 0),
		sql.Named("until", 9), sql.Named("key", 5), sql.Named("thread", "t"), sql.Named("run", "r")}
	for _, c := range []struct {
		name, sql string
		args      []any
	}{
		{"thread", selectThread, []any{"t", "th"}},
		{"run", selectRun, []any{"t", "th", "r"}},
		{"states", strings.ReplaceAll(selectStates, "%s", "?,?"), []any{"t", "th", "a", "b"}},
		{"messages", strings.ReplaceAll(selectMessages, "%s", "?,?"), []any{"t", "th", "a", "b"}},
		{"threads", selectThreads, named},
		{"details", selectDetails, []any{"t", "th"}},
		{"indexed to", selectIndexedTo, named[:1]},
		{"found", selectFound, []any{named[0], named[2], named[3], sql.Named("words", ""), sql.Named("archived", "no")}},
		{"found by time", selectFoundDescending, byTime},
		{"found by time, ascending", selectFoundAscending, byTime},
	} {
		t.Run(c.name, func(t *testing.T) {
			var plan []string
			err := each(t.Context(), s.read, "EXPLAIN QUERY PLAN "+c.sql, c.args, func(scan func(...any) error) error {
				var id, parent, unused int
				var detail string
				err := scan(&id, &parent, &unused, &detail)
				plan = append(plan, detail)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range plan {
				if strings.Contains(step, "TEMP B-TREE FOR ORDER BY") || strings.Contains(step, "AUTOMATIC") {
					t.Errorf("reads all before the first row: %s", step)
				}
				for _, table := range []string{"runs", "messages", "states", "m", "s", "r", "l", "d", "thread_details"} {
					if step == "SCAN "+table || strings.HasPrefix(step, "SCAN "+table+" ") {
						t.Errorf("reads a whole table: %s\n%s", step, strings.Join(plan, "\n"))
					}
				}
			}
			t.Log(strings.Join(plan, "\n"))
		})
	}
}
