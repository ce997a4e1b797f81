package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/schemas"
)

// Migrate implements store.Migrator. Each migration and its number (user_version) are one transaction, so a killed process leaves no
// half migration. Two processes may migrate concurrently.
func (s *Store) Migrate(ctx context.Context) error {
	ms, err := store.Migrations(schemas.SQLite, "sqlite")
	if err != nil {
		return err
	}
	for {
		done, err := s.migrateNext(ctx, ms)
		if err != nil {
			return fmt.Errorf("migrating store: %w", err)
		}
		if done {
			return nil
		}
	}
}

// migrateNext applies the first missing migration and reports whether there was none.
func (s *Store) migrateNext(ctx context.Context, ms []store.Migration) (done bool, err error) {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer rollback(tx, &err)
	var version int
	if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return false, err
	}
	switch {
	case version > len(ms):
		return false, fmt.Errorf("%w: it has number %d and this binary knows up to %d; use a newer skein or another data folder",
			store.ErrSchema, version, len(ms))
	case version == len(ms):
		return true, nil
	}
	m := ms[version]
	if _, err := tx.ExecContext(ctx, m.SQL); err != nil {
		return false, fmt.Errorf("applying %s: %w", m.Name, err)
	}
	// A pragma takes no parameters.
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", m.Version)); err != nil {
		return false, fmt.Errorf("applying %s: %w", m.Name, err)
	}
	return false, tx.Commit()
}

// rollback rolls back a transaction that was not committed and joins its error to err.
func rollback(tx *sql.Tx, err *error) {
	if e := tx.Rollback(); e != nil && !errors.Is(e, sql.ErrTxDone) {
		*err = errors.Join(*err, fmt.Errorf("rolling back: %w", e))
	}
}
