package clickhouse

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/skeinhq/skein/pkg/store"
)

// rebuildSuffix ends the name of the database that a rebuild fills.
const rebuildSuffix = "_rebuild"

var (
	//go:embed sql/tables.sql
	selectTables string
	//go:embed sql/erased.sql
	selectErased string
)

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
		return nil, errors.Join(err, beside.Drop(context.WithoutCancel(ctx)), beside.Close())
	}
	return beside, nil
}

// Database returns the name of the store's database.
func (s *Store) Database() string { return s.opts.Database }

// Drop drops the database that Beside has made, with all that is in it, however large its tables are.
func (s *Store) Drop(ctx context.Context) error {
	if !strings.HasSuffix(s.opts.Database, rebuildSuffix) {
		return fmt.Errorf("dropping database %s: no rebuild has made it", s.opts.Database)
	}
	// The server refuses to drop tables of more than 50 GB otherwise.
	anySize := ch.Settings{"max_table_size_to_drop": 0, "max_partition_size_to_drop": 0}
	if err := s.withoutDatabase(ctx, "DROP DATABASE IF EXISTS "+identifier(s.opts.Database)+" /* on cluster */ SYNC", anySize); err != nil {
		return fmt.Errorf("dropping database %s: %w", s.opts.Database, err)
	}
	return nil
}

// ofView matches the statements of the schema that make views.
var ofView = regexp.MustCompile(`^CREATE (MATERIALIZED )?VIEW`) //nolint:misspell // the server's spelling

// exchangeOrder is the order of Replace, behind positions. Tables that are not named come first.
var exchangeOrder = []string{"messages", "states", "tool_calls", "interrupts", "answers", "runs_by_time", "runs", "erasures", "sources"}

// Replace puts the tables of a store that Beside has made into the place of this store's, each in one step, and makes the views anew. The
// other store has the former tables then. While it lasts, views are missing, and rows that are written to this store may end up
// with the former tables, or miss runs_by_time: fill it once more with all that skein.runs had by the time when Replace returned.
//
// What was erased from this store meanwhile is erased from the other one before its tables are seen, and once more behind that, of what
// was erased in between.
//
// Positions go first: the other store's are behind this one's, and must not be those of rows that its table of runs lacks. A block that is being written
// meanwhile may still have its rows in a former table and its position in the new one, until the store was filled again. Then come
// the tables of contents, before that of runs, as for Write. Before and after an exchange a run's rows are the same where both have its record, so
// that readers may see tables of both.
//
// A statement that fails is tried again, unless it was carried out all the same. The table schema_migrations is missing from the first step to the last: where
// Replace does not come to its end, Ping says so.
func (s *Store) Replace(ctx context.Context, by *Store) error {
	if err := s.replace(ctx, by); err != nil {
		return fmt.Errorf("replacing tables: %w", err)
	}
	return nil
}

func (s *Store) replace(ctx context.Context, by *Store) error {
	if err := insist(ctx, func() error { return s.createDatabase(ctx) }); err != nil {
		return err
	}
	var here, there map[string]table
	err := insist(ctx, func() (err error) {
		if here, err = s.tables(ctx); err == nil {
			there, err = by.tables(ctx)
		}
		return err
	})
	if err != nil {
		return err
	}
	if _, has := here["erasures"]; has {
		if err := insist(ctx, func() error { return s.eraseFrom(ctx, by) }); err != nil {
			return err
		}
	}
	for _, step := range s.exchanges(by, here, there) {
		if err := insist(ctx, func() error { return step.run(ctx, s) }); err != nil {
			return fmt.Errorf("%.80s: %w", step.statement, err)
		}
	}
	s.types.Clear()
	if _, has := here["erasures"]; has {
		return insist(ctx, func() error { return by.eraseFrom(ctx, s) })
	}
	return nil
}

// exchange is a step of Replace.
type exchange struct {
	statement string
	// moves names a table that the statement brings to the store; id is that of the table. Such a statement must not run twice.
	moves, id string
}

// run runs the statement, unless it was carried out before.
func (e exchange) run(ctx context.Context, s *Store) error {
	if e.moves != "" {
		now, err := s.tables(ctx)
		if err != nil || now[e.moves].id == e.id {
			return err
		}
	}
	return s.exec(ctx, s.opts.shaped(e.statement))
}

// exchanges returns the steps of Replace.
func (s *Store) exchanges(by *Store, here, there map[string]table) (steps []exchange) {
	const migrations, positions = "schema_migrations", "positions"
	do := func(statement string) { steps = append(steps, exchange{statement: statement}) }
	move := func(name string) {
		statement := "RENAME TABLE " + by.qualified(name) + " TO " + s.qualified(name) + " /* on cluster */"
		if _, has := here[name]; has && name != migrations {
			statement = "EXCHANGE TABLES " + s.qualified(name) + " AND " + by.qualified(name) + " /* on cluster */"
		}
		steps = append(steps, exchange{statement, name, there[name].id})
	}
	if _, has := here[migrations]; has {
		steps = append(steps, exchange{"RENAME TABLE " + s.qualified(migrations) + " TO " + by.qualified(migrations+"_before") + " /* on cluster */", migrations, ""})
	}
	for name, t := range there {
		if t.view { // it names tables of its database
			do("DROP VIEW IF EXISTS " + s.qualified(name) + " /* on cluster */")
			do("DROP VIEW IF EXISTS " + by.qualified(name) + " /* on cluster */")
		}
	}
	var names []string
	for name, t := range there {
		_, has := here[name]
		if own := has && slices.Contains(ownTables, name); !t.view && !own && name != migrations && name != positions {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return slices.Index(exchangeOrder, a) - slices.Index(exchangeOrder, b) })
	move(positions)
	for _, name := range names {
		move(name)
	}
	for _, m := range schema {
		for _, statement := range split(m.SQL) {
			if ofView.MatchString(statement) {
				do(statement)
			}
		}
	}
	move(migrations)
	return steps
}

// insist calls f until it succeeds, some times: the tables of two databases are mixed while Replace lasts.
func insist(ctx context.Context, f func() error) (err error) {
	const tries = 8 // half a minute
	wait := 250 * time.Millisecond
	for try := 1; ; try++ {
		if err = f(); err == nil || try == tries || errors.Is(err, ErrDenied) || ctx.Err() != nil {
			return err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
		wait *= 2
	}
}

// eraseFrom erases from another store what was erased from this one: its tombstones and erasures that the other lacks.
func (s *Store) eraseFrom(ctx context.Context, other *Store) error {
	var entries []store.Entry
	statement := strings.NewReplacer("$other", identifier(other.opts.Database)).Replace(selectErased)
	err := s.eachWith(ctx, s.opts.InsertTimeout, nil, statement, nil, func(scan scan) error {
		var e store.Entry
		var version uint64
		var erasure bool
		var erased store.Erasure
		if err := scan(&e.Tenant, &e.ThreadID, &e.RunID, &version, &e.Partition, &erasure, &erased.Below, &erased.At); err != nil {
			return err
		}
		e.Version = int64(version)
		if erasure {
			e.Erasure = &erased
		}
		entries = append(entries, e)
		return nil
	})
	if err == nil {
		err = other.Write(ctx, entries)
	}
	if err != nil {
		return fmt.Errorf("carrying erasures over: %w", err)
	}
	return nil
}

// table is a table or view of the database.
type table struct {
	view bool
	id   string // the server's, which stays when the table is renamed or exchanged
}

// tables returns the tables and views of the database.
func (s *Store) tables(ctx context.Context) (map[string]table, error) {
	all := map[string]table{}
	err := s.each(ctx, selectTables, named{"database": s.opts.Database}, func(scan scan) error {
		var name, engine, id string
		err := scan(&name, &engine, &id)
		all[name] = table{view: strings.HasSuffix(engine, "View"), id: id}
		return err
	})
	return all, err
}

func (s *Store) qualified(table string) string {
	return identifier(s.opts.Database) + "." + identifier(table)
}

// withoutDatabase runs a statement on a connection without a database: one that is missing cannot be connected to.
func (s *Store) withoutDatabase(ctx context.Context, statement string, settings ch.Settings) (err error) {
	d := *s.driver
	d.Auth.Database = ""
	c, err := ch.Open(&d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	ctx, cancel := s.writing(ctx, settings)
	defer cancel()
	return explain(c.Exec(ctx, s.opts.shaped(statement)))
}
