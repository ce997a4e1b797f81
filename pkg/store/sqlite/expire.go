package sqlite

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// expired selects the threads of a tenant that Expire deletes.
const expired = `SELECT thread_id FROM runs WHERE tenant = ?1 AND deleted = 0
GROUP BY thread_id HAVING max(iif(recorded_at = 0, updated_at, recorded_at)) < ?2 AND sum(status = 'running') = 0`

// Tenants implements store.Expirer.
func (s *Store) Tenants(ctx context.Context) (tenants []string, err error) {
	const query = "SELECT DISTINCT tenant FROM runs WHERE deleted = 0 ORDER BY tenant"
	err = each(ctx, s.read, query, nil, func(scan func(...any) error) error {
		var tenant string
		err := scan(&tenant)
		tenants = append(tenants, tenant)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("looking for tenants: %w", err)
	}
	return tenants, nil
}

// Expire implements store.Expirer. It is one transaction, and keeps tombstones.
func (s *Store) Expire(ctx context.Context, tenant string, before time.Time) (threads int, err error) {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return 0, fmt.Errorf("deleting expired threads: %w", err)
	}
	defer rollback(tx, &err)
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM ("+expired+")", tenant, before.UnixMilli()).Scan(&threads); err != nil {
		return 0, fmt.Errorf("looking for expired threads: %w", err)
	}
	if threads == 0 {
		return 0, nil
	}
	for _, table := range append(slices.Clone(contentTables), "thread_details", "runs") {
		statement := "DELETE FROM " + table + " WHERE tenant = ?1 AND thread_id IN (" + expired + ")"
		if table == "runs" || table == "thread_details" {
			statement += " AND deleted = 0"
		}
		if _, err := tx.ExecContext(ctx, statement, tenant, before.UnixMilli()); err != nil {
			return 0, fmt.Errorf("deleting expired threads from %s: %w", table, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return 0, fmt.Errorf("deleting expired threads: %w", err)
	}
	return threads, nil
}
