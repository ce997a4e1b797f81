package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"strings"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/schemas"
)

// schema has the migrations of this binary.
var schema = func() []store.Migration {
	ms, err := store.Migrations(schemas.ClickHouse, "clickhouse")
	if err != nil {
		panic(err) // the files are embedded
	}
	return ms
}()

// split returns the statements of a file, each of which ends with a semicolon at the end of a line. The server takes one at a time.
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

// shaped inserts ON CLUSTER and the engines' prefix into a statement.
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

// Migrate implements store.Migrator. It creates a missing database and applies the missing migrations. ClickHouse has no
// transactions and no locks for this, so every statement may run again: two concurrent migrations end with the same schema, and so
// does a migration after a killed one. Migrate does not change a schema that is newer than this binary: from the first release on,
// changes only add.
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
			return fmt.Errorf("migrating ClickHouse: applying %s: %w", m.Name, err)
		}
	}
	return nil
}

func (s *Store) apply(ctx context.Context, m store.Migration) error {
	for _, statement := range split(m.SQL) {
		if err := s.exec(ctx, s.opts.shaped(statement)); err != nil {
			return err
		}
	}
	return s.exec(ctx, "INSERT INTO schema_migrations (version, name) VALUES (?, ?)", m.Version, m.Name)
}

// exec runs a statement that writes.
func (s *Store) exec(ctx context.Context, statement string, args ...any) error {
	ctx, cancel := s.writing(ctx, nil)
	defer cancel()
	return explain(s.conn.Exec(ctx, statement, args...))
}

func (s *Store) createDatabase(ctx context.Context) error {
	return s.withoutDatabase(ctx, "CREATE DATABASE IF NOT EXISTS "+identifier(s.opts.Database)+" /* on cluster */", nil)
}

// schemaVersion returns the number of the last applied migration; 0 if there is none.
func (s *Store) schemaVersion(ctx context.Context) (int, error) {
	var version uint32
	err := s.each(ctx, "SELECT max(version) FROM schema_migrations", nil, func(r row) error { return r.Scan(&version) })
	var ex *ch.Exception
	const unknownTable = 60
	if errors.As(err, &ex) && ex.Code == unknownTable {
		return 0, nil
	}
	return int(version), err
}
