package clickhouse

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/skeinhq/skein/pkg/store"
)

func TestMigrate_FromNothingByManyAtOnce(t *testing.T) {
	o := optionsFor(t)
	base := connect(t, o)
	o.Database += "_new"
	s := connect(t, o)
	if err := s.Ping(t.Context()); !errors.Is(err, ErrSchemaOld) {
		t.Errorf("Ping without a database: %v, want ErrSchemaOld", err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := s.Migrate(t.Context()); err != nil {
				t.Errorf("Migrate: %v", err)
			}
		})
	}
	wg.Wait()
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("Ping after Migrate: %v", err)
	}
	if err := base.exec(t.Context(), "DROP DATABASE "+identifier(o.Database)); err != nil {
		t.Error(err)
	}
}

// Rows that are there stay, and the tables of later migrations come to them.
func TestMigrate_UpgradesAnEarlierSchema(t *testing.T) {
	s := connect(t, optionsFor(t))
	if err := s.apply(t.Context(), schema[0]); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, ErrSchemaOld) {
		t.Errorf("Ping: %v, want ErrSchemaOld", err)
	}
	if err := insert(t.Context(), s, "erasures", "", []*erasureRow{{Tenant: "t", ThreadID: "th", Below: 7}}); err != nil {
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

func TestPing_TellsAnOldSchema(t *testing.T) {
	s := connect(t, optionsFor(t))
	for _, c := range []struct {
		name, statement string
		old             bool
	}{
		{"an empty database", "", true},
		{"migrated", "migrate", false},
		{"a newer one", "INSERT INTO schema_migrations (version, name) VALUES (9999, 'later')", false},
		{"one that has lost its numbers", "TRUNCATE TABLE schema_migrations", true},
	} {
		var err error
		switch c.statement {
		case "":
		case "migrate":
			err = s.Migrate(t.Context())
		default:
			err = s.exec(t.Context(), c.statement)
		}
		if err != nil {
			t.Fatal(err)
		}
		err = s.Ping(t.Context())
		if errors.Is(err, ErrSchemaOld) != c.old || (err != nil) != c.old {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.old && !strings.Contains(err.Error(), "skein migrate") {
			t.Errorf("%s: %v does not say what to do", c.name, err)
		}
	}
	o := s.opts
	o.Database = "no_such_database"
	const want = "asking ClickHouse for its schema: there is no such database: run `skein migrate`"
	if err := connect(t, o).Ping(t.Context()); !errors.Is(err, ErrSchemaOld) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("Ping without a database: %v, want %s", err, want)
	}
}

// A store that is running when its table changes says what is wrong, and goes on when that is put right.
func TestWrite_TellsAMissingColumn(t *testing.T) {
	s := open(t)
	if err := s.Write(t.Context(), []store.Entry{sealedEntry(1)}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		statement string
		want      error
	}{
		{"ALTER TABLE runs DROP COLUMN fold_version", ErrSchemaOld},
		{"ALTER TABLE runs ADD COLUMN fold_version UInt32", nil},
	} {
		if err := s.exec(t.Context(), c.statement); err != nil {
			t.Fatal(err)
		}
		err := s.Write(t.Context(), []store.Entry{sealedEntry(2)})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.statement, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), "where it is newer, run a newer binary") { // a later migration may have dropped it
			t.Errorf("%v: it says that the schema is older", err)
		}
	}
}

// Two may migrate at once, and one may die in between: each statement must be one that can run again.
func TestMigrations_CanRunAgain(t *testing.T) {
	for _, m := range schema {
		for _, statement := range split(m.SQL) {
			if !strings.Contains(statement, "IF NOT EXISTS") && !strings.Contains(statement, "IF EXISTS") {
				t.Errorf("%s: %.60s… cannot run twice", m.Name, statement)
			}
			if strings.Contains(statement, "MergeTree") && !strings.Contains(statement, "ENGINE = /* replicated */") {
				t.Errorf("%s: %.60s… has an engine that cannot be Replicated", m.Name, statement)
			}
			if !strings.Contains(statement, "/* on cluster */") {
				t.Errorf("%s: %.60s… cannot run on a cluster", m.Name, statement)
			}
		}
	}
}

func TestOptions_ShapeStatements(t *testing.T) {
	const statement = "CREATE TABLE IF NOT EXISTS x /* on cluster */ (a UInt8) ENGINE = /* replicated */ReplacingMergeTree(v)"
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, "CREATE TABLE IF NOT EXISTS x  (a UInt8) ENGINE = ReplacingMergeTree(v)"},
		{Options{Cluster: "a`b", Replicated: true}, "CREATE TABLE IF NOT EXISTS x ON CLUSTER `a\\`b` (a UInt8) ENGINE = ReplicatedReplacingMergeTree(v)"},
	} {
		if got := c.o.shaped(statement); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestSplit_EndsStatementsAtLineEnds(t *testing.T) {
	got := split("-- a; comment;\nCREATE x -- with; one\n(\n  a -- b;c\n);\n\n-- next\nALTER y;\nDROP z")
	want := []string{"CREATE x -- with; one\n(\n  a -- b;c\n)", "ALTER y", "DROP z"}
	if len(got) != len(want) {
		t.Fatalf("%d statements: %q", len(got), got)
	}
	for i := range want {
		if strings.TrimSpace(got[i]) != want[i] {
			t.Errorf("statement %d: %q, want %q", i, got[i], want[i])
		}
	}
}
