package clickhouse

import (
	"context"
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

// ownTables are the tables whose rows do not come from skein.runs. A rebuild does not change them.
var ownTables = []string{"prices"}

// Beside returns a store in a new, empty database with this binary's schema. The new database has this one's name followed by
// "_rebuild". Beside first drops a database of that name, which an interrupted rebuild has left. The caller must close the new store.
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

// Drop drops a database that Beside has made.
func (s *Store) Drop(ctx context.Context) error {
	if !strings.HasSuffix(s.opts.Database, rebuildSuffix) {
		return fmt.Errorf("dropping database %s: no rebuild has made it", s.opts.Database)
	}
	// By default the server refuses to drop tables of more than 50 GB.
	anySize := ch.Settings{"max_table_size_to_drop": 0, "max_partition_size_to_drop": 0}
	if err := s.withoutDatabase(ctx, "DROP DATABASE IF EXISTS "+identifier(s.opts.Database)+" /* on cluster */ SYNC", anySize); err != nil {
		return fmt.Errorf("dropping database %s: %w", s.opts.Database, err)
	}
	return nil
}

// ofView matches the statements of the schema that create views.
var ofView = regexp.MustCompile(`^CREATE (MATERIALIZED )?VIEW`) //nolint:misspell // the server's spelling

// exchangeOrder is the order in which Replace exchanges these tables. positions and then all other tables come before them.
var exchangeOrder = []string{"messages", "states", "tool_calls", "interrupts", "answers", "runs_by_time", "runs", "thread_details",
	"erasures", "sources"}

// Replace exchanges the tables of this store, one at a time, with those of the argument by (a store from Beside), and creates the
// views again. Afterwards by has the former tables. While Replace runs, views are missing, and rows written to this store may go to
// the former tables or miss runs_by_time. So the caller must then fill this store again, with all records that skein.runs has when
// Replace returns.
//
// Before the new tables become visible, Replace copies this store's erasures to them; afterwards it copies those that came in between.
//
// Replace exchanges positions first: the new ones are lower, and a position must not promise rows that the new table of runs lacks.
// (Until this store is filled again, a block that was written meanwhile may have its rows in a former table and its position in the
// new one.) Contents come before runs, as in Write. A run has the same rows in both stores if both have its record, so readers may see
// tables of both.
//
// Replace retries failed statements, unless the server has executed them. The table schema_migrations is missing from the first step
// to the last: if Replace fails in between, Ping returns an error.
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
	// moves is the name of a table whose id after the statement is id ("" if it is moved away). Such a statement must not run twice.
	moves, id string
}

// run runs the statement, unless the server has executed it before.
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
		away := "RENAME TABLE " + s.qualified(migrations) + " TO " + by.qualified(migrations+"_before") + " /* on cluster */"
		steps = append(steps, exchange{away, migrations, ""})
	}
	for name, t := range there {
		if t.view { // its statement has the database's name
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

// insist retries f for half a minute, since the tables of the two databases are mixed until Replace has ended.
func insist(ctx context.Context, f func() error) (err error) {
	const tries = 8
	for try := range tries {
		if err = f(); err == nil || try == tries-1 || errors.Is(err, ErrDenied) || ctx.Err() != nil {
			break
		}
		select {
		case <-time.After(250 * time.Millisecond << try):
		case <-ctx.Done():
		}
	}
	return err
}

// eraseFrom writes this store's tombstones and erasures to the argument other, as far as other lacks them.
func (s *Store) eraseFrom(ctx context.Context, other *Store) error {
	var entries []store.Entry
	statement := strings.NewReplacer("$other", identifier(other.opts.Database)).Replace(selectErased)
	err := s.query(ctx, s.insertTimeout, nil, statement, nil, func(r row) error {
		var e store.Entry
		var version uint64
		var erasure bool
		var erased store.Erasure
		if err := r.Scan(&e.Tenant, &e.ThreadID, &e.RunID, &version, &e.Partition, &erasure, &erased.Below, &erased.At); err != nil {
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
	id   string // the server's id of the table, which a rename or exchange does not change
}

// tables returns the tables and views of the database.
func (s *Store) tables(ctx context.Context) (map[string]table, error) {
	all := map[string]table{}
	err := s.each(ctx, selectTables, named{"database": s.opts.Database}, func(r row) error {
		var name, engine, id string
		err := r.Scan(&name, &engine, &id)
		all[name] = table{view: strings.HasSuffix(engine, "View"), id: id}
		return err
	})
	return all, err
}

func (s *Store) qualified(table string) string {
	return identifier(s.opts.Database) + "." + identifier(table)
}

// withoutDatabase runs a statement on a connection without a database, as the server refuses connections to a missing one.
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
