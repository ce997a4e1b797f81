package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// DefaultSweepEvery is the default interval in which erased rows are removed from parts.
const DefaultSweepEvery = 24 * time.Hour

// KeepSweeping makes the server remove deleted rows from its parts, at most the duration every after their deletion, until ctx
// ends. A deletion only hides rows until the next merge of their part, and large parts may never be merged. Several processes may
// sweep one database. It logs errors and retries, and Overdue returns one that lasts; Purged reports whether a thread's rows are removed.
func (s *Store) KeepSweeping(ctx context.Context, every time.Duration, logger *slog.Logger) error {
	// A check costs two small statements. With these fractions, rows that are deleted just after a sweep are swept within that duration.
	tick := time.NewTicker(max(every/8, time.Second))
	defer tick.Stop()
	well := time.Now()
	for {
		err := errors.Join(s.Sweep(ctx, every-every/4), s.checkRemovals(ctx, every/4))
		if err == nil {
			well = time.Now()
		} else if ctx.Err() == nil {
			logger.WarnContext(ctx, "rows that were erased stay on disk for now", "error", err)
		}
		if late := time.Since(well); late < every/4 {
			s.overdue.Store(nil)
		} else {
			err = fmt.Errorf("erased rows have stayed on disk for %v too long: %w", late.Round(time.Second), err)
			s.overdue.Store(&err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Sweep makes the server rewrite the parts with deleted rows, except in tables that were swept less than notWithin ago. It does
// not wait for the server.
func (s *Store) Sweep(ctx context.Context, notWithin time.Duration) error {
	var tables []string
	all := append(slices.Clone(contentTables), detailTable)
	args := named{"database": s.opts.Database, "tables": all, "seconds": int64(notWithin.Seconds())}
	if err := s.each(ctx, selectMasked, args, func(r row) error {
		var table string
		err := r.Scan(&table)
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

// checkRemovals returns an error if the server has not ended a removal that it was asked for so long ago.
func (s *Store) checkRemovals(ctx context.Context, ago time.Duration) error {
	var unfinished []error
	err := s.each(ctx, selectUnfinished, named{"database": s.opts.Database, "seconds": int64(ago.Seconds())}, func(r row) error {
		var table, reason string
		if err := r.Scan(&table, &reason); err != nil {
			return err
		}
		unfinished = append(unfinished,
			fmt.Errorf("the server has removed nothing from %s for %v: see system.mutations; its reason is %q", table, ago, reason))
		return nil
	})
	return errors.Join(append(unfinished, err)...)
}

// Overdue returns why KeepSweeping could not have erased rows removed in time, or nil.
func (s *Store) Overdue() error {
	if err := s.overdue.Load(); err != nil {
		return *err
	}
	return nil
}

// purged is the statement of Purged. It also counts rows that a deletion hides.
var purged = func() string {
	const count = "SELECT count() AS n FROM $table WHERE tenant = {tenant:String} AND thread_id = {thread:String} AND version < erased"
	var counts []string
	for _, table := range append(slices.Clone(contentTables), detailTable) {
		one := strings.Replace(count, "$table", table, 1)
		if table == "runs" || table == detailTable {
			one += " AND deleted = 0"
		}
		counts = append(counts, one)
	}
	return "WITH (SELECT max(version) FROM erasures WHERE tenant = {tenant:String} AND thread_id = {thread:String}) AS erased " +
		"SELECT sum(n) = 0 FROM (" + strings.Join(counts, " UNION ALL ") + ") SETTINGS apply_deleted_mask = 0, enable_global_with_statement = 1"
}()

// Purged implements store.Reader. The server keeps replaced parts on disk for some minutes (old_parts_lifetime).
func (s *Store) Purged(ctx context.Context, tenant, thread string) (bool, error) {
	var gone uint8
	if err := s.each(ctx, purged, named{"tenant": tenant, "thread": thread}, func(r row) error { return r.Scan(&gone) }); err != nil {
		return false, fmt.Errorf("looking for erased rows: %w", err)
	}
	return gone == 1, nil
}
