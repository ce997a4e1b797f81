package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/skeinhq/skein/schemas"
)

// migration is one numbered SQL file.
type migration struct {
	version    int
	name       string
	statements []string
}

// schema is what this binary knows.
var schema = mustMigrations(schemas.ClickHouse, "clickhouse")

// mustMigrations reads files that are part of the binary.
func mustMigrations(files fs.FS, dir string) []migration {
	ms, err := migrations(files, dir)
	if err != nil {
		panic(err)
	}
	return ms
}

var migrationName = regexp.MustCompile(`^([0-9]{4})_[a-z0-9_]+\.sql$`)

// migrations reads the files in order and checks that they are numbered from 1 without a gap.
func migrations(files fs.FS, dir string) ([]migration, error) {
	entries, err := fs.ReadDir(files, dir) // sorted by name
	if err != nil {
		return nil, fmt.Errorf("reading migrations: %w", err)
	}
	var ms []migration
	for _, e := range entries {
		parts := migrationName.FindStringSubmatch(e.Name())
		if parts == nil {
			return nil, fmt.Errorf("reading migrations: %s is not named NNNN_name.sql", e.Name())
		}
		v, err := strconv.Atoi(parts[1])
		if err != nil || v != len(ms)+1 {
			return nil, fmt.Errorf("reading migrations: %s should be number %d", e.Name(), len(ms)+1)
		}
		b, err := fs.ReadFile(files, path.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading migrations: %w", err)
		}
		ms = append(ms, migration{version: v, name: e.Name(), statements: split(string(b))})
	}
	return ms, nil
}

// split returns the statements of a file: each ends with a semicolon at the end of a line. The server
// takes one at a time.
func split(sql string) []string {
	var statements []string
	var b strings.Builder
	for line := range strings.Lines(sql) {
		if t := strings.TrimSpace(line); t == "" || (strings.HasPrefix(t, "--") && b.Len() == 0) {
			continue
		}
		b.WriteString(line)
		if end, ok := strings.CutSuffix(strings.TrimRight(b.String(), " \t\n"), ";"); ok {
			statements = append(statements, end)
			b.Reset()
		}
	}
	if b.Len() > 0 {
		statements = append(statements, b.String())
	}
	return statements
}

// shaped puts the cluster and the engines' kind into a statement.
func (o Options) shaped(statement string) string {
	cluster, replicated := "", ""
	if o.Cluster != "" {
		cluster = "ON CLUSTER " + identifier(o.Cluster)
	}
	if o.Replicated {
		replicated = "Replicated"
	}
	return strings.NewReplacer("/* on cluster */", cluster, "/* replicated */", replicated).Replace(statement)
}

func identifier(name string) string {
	return "`" + strings.NewReplacer("\\", "\\\\", "`", "\\`").Replace(name) + "`"
}

// Migrate implements store.Migrator. It creates the database where it is missing and applies the files
// that were not yet. ClickHouse knows no transaction and no lock for this; so each statement is one
// that may run again, and two that migrate at once, or one after another was killed, end up with the
// same. A schema that is newer than this binary is left alone: changes only add.
func (s *Store) Migrate(ctx context.Context) error {
	have, err := s.schemaVersion(ctx)
	if errors.Is(err, errNoDatabase) {
		err = s.createDatabase(ctx)
	}
	if err != nil {
		return fmt.Errorf("migrating ClickHouse: %w", err)
	}
	for _, m := range schema[min(have, len(schema)):] {
		if err := s.apply(ctx, m); err != nil {
			return fmt.Errorf("migrating ClickHouse: applying %s: %w", m.name, err)
		}
	}
	return nil
}

func (s *Store) apply(ctx context.Context, m migration) error {
	for _, statement := range m.statements {
		if err := s.exec(ctx, s.opts.shaped(statement)); err != nil {
			return err
		}
	}
	return s.exec(ctx, "INSERT INTO schema_migrations (version, name) VALUES (?, ?)", m.version, m.name)
}

// exec runs a statement that changes something.
func (s *Store) exec(ctx context.Context, statement string, args ...any) error {
	ctx, cancel := s.writing(ctx, nil)
	defer cancel()
	return explain(s.conn.Exec(ctx, statement, args...))
}

// createDatabase connects without a database: one that is missing cannot be connected to.
func (s *Store) createDatabase(ctx context.Context) (err error) {
	d := *s.driver
	d.Auth.Database = ""
	c, err := ch.Open(&d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	ctx, cancel := s.writing(ctx, nil)
	defer cancel()
	statement := "CREATE DATABASE IF NOT EXISTS " + identifier(s.opts.Database) + " /* on cluster */"
	return explain(c.Exec(ctx, s.opts.shaped(statement)))
}

// errNoDatabase is ErrSchemaOld where even the database is missing.
var errNoDatabase = fmt.Errorf("%w (there is no database)", ErrSchemaOld)

// schemaVersion returns the number of the last file that was applied, 0 where none was.
func (s *Store) schemaVersion(ctx context.Context) (int, error) {
	ctx, cancel := s.reading(ctx)
	defer cancel()
	var version uint32
	err := s.conn.QueryRow(ctx, "SELECT max(version) FROM schema_migrations").Scan(&version)
	var ex *ch.Exception
	if errors.As(err, &ex) {
		const unknownTable, unknownDatabase = 60, 81
		switch ex.Code {
		case unknownTable:
			return 0, nil
		case unknownDatabase:
			return 0, fmt.Errorf("%w: %w", errNoDatabase, err)
		}
	}
	if err != nil {
		return 0, explain(err)
	}
	return int(version), nil
}
