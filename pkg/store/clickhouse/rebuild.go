package clickhouse

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	ch "github.com/ClickHouse/clickhouse-go/v2"
)

// rebuildSuffix ends the name of the database that a rebuild fills.
const rebuildSuffix = "_rebuild"

//go:embed sql/tables.sql
var selectTables string

// ownTables are the tables whose rows are not made of skein.runs. A rebuild leaves them as they are.
var ownTables = []string{"prices"}

// Beside returns a store in a new database with the present schema beside this one. Its name is that of this one and "_rebuild"; a database of
// that name, which a rebuild left that did not come to its end, is dropped. Close the store when done.
func (s *Store) Beside(ctx context.Context) (_ *Store, err error) {
	o := s.opts
	o.Database += rebuildSuffix
	beside, err := New(o)
	if err != nil {
		return nil, err
	}
	if err := beside.Drop(ctx); err != nil {
		return nil, errors.Join(err, beside.Close())
	}
	if err := beside.Migrate(ctx); err != nil {
		return nil, errors.Join(err, beside.Close())
	}
	return beside, nil
}

// Drop drops the database that Beside has made, with all that is in it.
func (s *Store) Drop(ctx context.Context) error {
	if !strings.HasSuffix(s.opts.Database, rebuildSuffix) {
		return fmt.Errorf("dropping database %s: no rebuild has made it", s.opts.Database)
	}
	if err := s.withoutDatabase(ctx, "DROP DATABASE IF EXISTS "+identifier(s.opts.Database)+" /* on cluster */ SYNC"); err != nil {
		return fmt.Errorf("dropping database %s: %w", s.opts.Database, err)
	}
	return nil
}

// ofView matches the statements of the schema that make views or say something of them.
var ofView = regexp.MustCompile(`^(CREATE (MATERIALIZED )?VIEW|DROP VIEW|ALTER TABLE v_)`) //nolint:misspell // the server's spelling

// Replace puts the tables of a store that Beside has made into the place of this store's, each in one step, and makes the views anew. The
// other store has the former tables then. While it lasts, views are missing for some moments, and rows that are written to this store may end up
// with the former tables, or miss runs_by_time: fill it once more with all that skein.runs had by the time when Replace returned.
//
// The tables of contents go before that of runs, and positions last, as for Write. Before and after an exchange a run's rows are the same
// where both have its record, so that readers may see tables of both.
func (s *Store) Replace(ctx context.Context, by *Store) error {
	if err := s.createDatabase(ctx); err != nil {
		return fmt.Errorf("replacing tables: %w", err)
	}
	here, err := s.tables(ctx)
	if err != nil {
		return fmt.Errorf("replacing tables: %w", err)
	}
	there, err := by.tables(ctx)
	if err != nil {
		return fmt.Errorf("replacing tables: %w", err)
	}
	var names []string
	for name, view := range there {
		if !view && !slices.Contains(ownTables, name) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return slices.Index(exchangeOrder, a) - slices.Index(exchangeOrder, b) })
	var statements []string
	for name, view := range there {
		if view { // it names tables of its database
			statements = append(statements, "DROP VIEW IF EXISTS "+s.qualified(name)+" /* on cluster */", "DROP VIEW IF EXISTS "+by.qualified(name)+" /* on cluster */")
		}
	}
	for _, name := range names {
		if _, has := here[name]; has {
			statements = append(statements, "EXCHANGE TABLES "+s.qualified(name)+" AND "+by.qualified(name)+" /* on cluster */")
		} else {
			statements = append(statements, "RENAME TABLE "+by.qualified(name)+" TO "+s.qualified(name)+" /* on cluster */")
		}
	}
	for _, name := range ownTables {
		if _, has := here[name]; !has {
			statements = append(statements, "RENAME TABLE "+by.qualified(name)+" TO "+s.qualified(name)+" /* on cluster */")
		}
	}
	for _, m := range schema {
		for _, statement := range split(m.SQL) {
			if ofView.MatchString(statement) {
				statements = append(statements, statement)
			}
		}
	}
	for _, statement := range statements {
		if err := s.exec(ctx, s.opts.shaped(statement)); err != nil {
			return fmt.Errorf("replacing tables: %.80s: %w", statement, err)
		}
	}
	s.types.Clear()
	return nil
}

// exchangeOrder is the order of Replace. Tables that are not named come first.
var exchangeOrder = []string{"messages", "states", "tool_calls", "interrupts", "answers", "runs_by_time", "runs", "erasures", "sources", "positions", "schema_migrations"}

// tables returns the tables and views of the database, and of each whether it is a view.
func (s *Store) tables(ctx context.Context) (map[string]bool, error) {
	all := map[string]bool{}
	err := s.each(ctx, selectTables, named{"database": s.opts.Database}, func(scan scan) error {
		var name, engine string
		err := scan(&name, &engine)
		all[name] = strings.HasSuffix(engine, "View")
		return err
	})
	return all, err
}

func (s *Store) qualified(table string) string {
	return identifier(s.opts.Database) + "." + identifier(table)
}

// withoutDatabase runs a statement on a connection without a database: one that is missing cannot be connected to.
func (s *Store) withoutDatabase(ctx context.Context, statement string) (err error) {
	d := *s.driver
	d.Auth.Database = ""
	c, err := ch.Open(&d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	ctx, cancel := s.writing(ctx, nil)
	defer cancel()
	return explain(c.Exec(ctx, s.opts.shaped(statement)))
}
