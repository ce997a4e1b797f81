package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/schemas"
)

// readers is the number of reading connections, the same as of query's slots: with fewer, tenants would wait in one queue
// for those that another tenant's large reads hold.
var readers = max(16, 8*runtime.GOMAXPROCS(0))

// Store is a lineage store in one SQLite file. It is safe for concurrent use.
type Store struct {
	write *sql.DB // one connection: SQLite has one writer, and waiting in Go avoids SQLITE_BUSY
	read  *sql.DB
}

var (
	_ store.Writer   = (*Store)(nil)
	_ store.Reader   = (*Store)(nil)
	_ store.Migrator = (*Store)(nil)
	_ store.Expirer  = (*Store)(nil)
)

// Open opens or creates the file at path; its folder must exist. Call Migrate before any read or write of a new file.
func Open(ctx context.Context, path string) (*Store, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("opening store: %w", err)
	}
	w, err := sql.Open("sqlite", dataSource(abs, true))
	if err != nil {
		return nil, fmt.Errorf("opening store %s: %w", abs, err)
	}
	w.SetMaxOpenConns(1)
	// The first connection creates the file and switches it to WAL.
	if err := w.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("opening store %s: %w", abs, err), w.Close())
	}
	r, err := sql.Open("sqlite", dataSource(abs, false))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening store %s: %w", abs, err), w.Close())
	}
	r.SetMaxOpenConns(readers)
	r.SetMaxIdleConns(readers)
	return &Store{write: w, read: r}, nil
}

// dataSource returns the driver's URL of the file with the settings of a connection.
func dataSource(path string, writer bool) string {
	q := url.Values{}
	// Another process (a backup, the sqlite3 shell) may lock the file for a moment.
	q.Add("_pragma", "busy_timeout(5000)")
	// Readers and the writer do not block each other.
	q.Add("_pragma", "journal_mode(WAL)")
	if writer {
		// With NORMAL, the default for WAL, a power failure may lose commits after which the indexer has committed its offsets.
		q.Add("_pragma", "synchronous(FULL)")
		// Shrinks the log after a large block.
		q.Add("_pragma", "journal_size_limit(67108864)")
		// Overwrites deleted rows with zeros, so that no erased text remains in free pages.
		q.Add("_pragma", "secure_delete(ON)")
		// Takes the write lock at BEGIN. A deferred transaction can fail to get it later.
		q.Add("_txlock", "immediate")
	} else {
		q.Add("_pragma", "query_only(1)")
	}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: q.Encode()}
	return u.String()
}

// Close implements store.Writer. Running calls fail.
func (s *Store) Close() error {
	if err := errors.Join(s.read.Close(), s.write.Close()); err != nil {
		return fmt.Errorf("closing store: %w", err)
	}
	return nil
}

// Ping implements store.Reader. It fails if the schema is older than this binary's, and with store.ErrSchema if it is newer.
func (s *Store) Ping(ctx context.Context) error {
	var have int
	if err := s.read.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
		return fmt.Errorf("asking store: %w", err)
	}
	ms, err := store.Migrations(schemas.SQLite, "sqlite")
	if err != nil {
		return err
	}
	switch want := len(ms); {
	case have < want:
		return fmt.Errorf("asking store: the schema is not there yet; run skein migrate (it has number %d of %d)", have, want)
	case have > want:
		return fmt.Errorf("asking store: %w: it is newer (number %d, and this binary knows %d)", store.ErrSchema, have, want)
	}
	return nil
}
