package clickhouse

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

//go:embed sql/masked.sql
var selectMasked string

// DefaultSweepEvery is how often parts are rewritten for the sake of erasures, at most.
const DefaultSweepEvery = 24 * time.Hour

// KeepSweeping has the server remove erased rows from its parts within a duration of their deletion, until the context ends. A deletion
// only hides rows, and the server removes them when it merges a part the next time, which may be never for a large one. Several processes
// may do this for one database. Failures are logged and tried again: the rows are hidden, and Purged says how far they are.
func (s *Store) KeepSweeping(ctx context.Context, every time.Duration, logger *slog.Logger) error {
	// A look costs two small statements. With these shares of the duration, a deletion that a sweep just missed is in the next one.
	tick := time.NewTicker(max(every/8, time.Second))
	defer tick.Stop()
	for {
		if err := s.Sweep(ctx, every-every/4); err != nil && ctx.Err() == nil {
			logger.WarnContext(ctx, "rows that were erased stay on disk for now", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Sweep has the server rewrite the parts that hold deleted rows, in the tables that have not been swept for a while. It does not wait for that.
func (s *Store) Sweep(ctx context.Context, notWithin time.Duration) error {
	var tables []string
	args := named{"database": s.opts.Database, "tables": contentTables, "seconds": int64(notWithin.Seconds())}
	if err := s.each(ctx, selectMasked, args, func(scan scan) error {
		var table string
		err := scan(&table)
		tables = append(tables, table)
		return err
	}); err != nil {
		return fmt.Errorf("looking for deleted rows: %w", err)
	}
	var failed []error
	for _, table := range tables {
		if err := s.exec(ctx, s.opts.shaped("ALTER TABLE "+table+" /* on cluster */ APPLY DELETED MASK")); err != nil {
			failed = append(failed, fmt.Errorf("removing deleted rows from %s: %w", table, err))
		}
	}
	return errors.Join(failed...)
}

// purged is the statement of Purged: it counts also the rows that a deletion hides.
var purged = func() string {
	const count = "SELECT count() AS n FROM $table WHERE tenant = {tenant:String} AND thread_id = {thread:String} AND version < erased"
	counts := make([]string, len(contentTables))
	for i, table := range contentTables {
		counts[i] = strings.Replace(count, "$table", table, 1)
		if table == "runs" {
			counts[i] += " AND deleted = 0"
		}
	}
	return "WITH (SELECT max(version) FROM erasures WHERE tenant = {tenant:String} AND thread_id = {thread:String}) AS erased " +
		"SELECT sum(n) = 0 FROM (" + strings.Join(counts, " UNION ALL ") + ") SETTINGS apply_deleted_mask = 0, enable_global_with_statement = 1"
}()

// Purged implements store.Reader. Parts that the server has replaced stay on its disk for some minutes (old_parts_lifetime).
func (s *Store) Purged(ctx context.Context, tenant, thread string) (bool, error) {
	var gone uint8
	if err := s.each(ctx, purged, named{"tenant": tenant, "thread": thread}, func(scan scan) error { return scan(&gone) }); err != nil {
		return false, fmt.Errorf("looking for erased rows: %w", err)
	}
	return gone == 1, nil
}
