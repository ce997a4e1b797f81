package clickhouse

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/skeinhq/skein/pkg/store"
)

// Store is a lineage store in ClickHouse. It is safe for concurrent use.
type Store struct {
	opts   Options
	driver *ch.Options
	conn   driver.Conn // a pool
	http   *sharedTransport
	types  sync.Map // of columns, by table: []ch.ColumnNameAndType
	// overdue is why erased rows stay on disk for longer than they may; nil: they do not, or nobody sweeps.
	overdue atomic.Pointer[error]
	// The constants of these names; tests change them.
	queryTimeout, insertTimeout time.Duration
	blockRows, blockBytes       int
}

var (
	_ store.Writer   = (*Store)(nil)
	_ store.Reader   = (*Store)(nil)
	_ store.Migrator = (*Store)(nil)
	_ store.Expirer  = (*Store)(nil)
)

// New returns a store. It does not connect.
func New(o Options) (*Store, error) {
	o.Database = cmp.Or(o.Database, DefaultDatabase)
	d, err := o.driver()
	if err != nil {
		return nil, err
	}
	shared := &sharedTransport{connections: d.MaxOpenConns}
	d.TransportFunc = shared.of
	if o.PasswordFile != "" {
		in := &login{user: o.Username, file: o.PasswordFile}
		d.DialStrategy, shared.login = in.dial, in
	}
	c, err := ch.Open(d)
	if err != nil {
		return nil, fmt.Errorf("opening ClickHouse: %w", err)
	}
	return &Store{
		opts: o, driver: d, conn: c, http: shared,
		queryTimeout: queryTimeout, insertTimeout: insertTimeout, blockRows: blockRows, blockBytes: blockBytes,
	}, nil
}

// Close implements store.Writer. It does not wait for running calls.
func (s *Store) Close() error {
	err := s.conn.Close()
	s.http.close()
	if err != nil {
		return fmt.Errorf("closing ClickHouse: %w", err)
	}
	return nil
}

// Ping implements store.Reader. It fails if the schema is too old for this binary.
func (s *Store) Ping(ctx context.Context) error {
	have, err := s.schemaVersion(ctx)
	if err != nil {
		return fmt.Errorf("asking ClickHouse for its schema: %w", err)
	}
	if want := len(schema); have < want {
		return fmt.Errorf("%w (it has number %d of %d)", ErrSchemaOld, have, want)
	}
	return nil
}

// reading returns a context for one statement of a read.
func (s *Store) reading(ctx context.Context, limit time.Duration, more ch.Settings) (context.Context, context.CancelFunc) {
	settings := ch.Settings{
		// FINAL over a short range is no faster with more threads, and many readers share the cores.
		"max_threads": 2,
		// Otherwise a read with FINAL reads all columns of every granule that the primary key selects. The server moves only conditions on the
		// sorting key, which is the same for all versions of a row, so FINAL still sees every version.
		"optimize_move_to_prewhere_if_final": 1, //nolint:misspell // the server's spelling
	}
	maps.Copy(settings, more)
	return s.bounded(ctx, limit, settings)
}

// writing returns a context for one statement of a write.
func (s *Store) writing(ctx context.Context, more ch.Settings) (context.Context, context.CancelFunc) {
	settings := ch.Settings{
		// An acknowledgement must mean that the rows are in a part. Blocks are large already.
		"async_insert": 0,
		// The server's profile may turn tokens off.
		"insert_deduplicate": 1,
		// Merges build the indexes: the index of words takes longer than the rest of a message's insert.
		"materialize_skip_indexes_on_insert": 0, //nolint:misspell // the server's spelling
		// If the server dies after it has written a block to runs but not to runs_by_time, a retry writes the block to runs_by_time.
		"deduplicate_blocks_in_dependent_materialized_views": 1, //nolint:misspell // the server's spelling
		// The server stores a deletion and executes it later, even after a restart. Until then tombstones hide the rows.
		"lightweight_deletes_sync": 0,
	}
	maps.Copy(settings, more)
	return s.bounded(ctx, s.insertTimeout, settings)
}

// bounded limits the time of a statement on both sides. The server must stop by itself, because over HTTP it does not notice that the
// client is gone; and the client must not wait for a server that hangs.
func (s *Store) bounded(ctx context.Context, limit time.Duration, settings ch.Settings) (context.Context, context.CancelFunc) {
	const grace = 2 * time.Second
	settings["max_execution_time"] = max(1, int(limit.Seconds()))
	ctx, cancel := context.WithTimeout(ctx, limit+grace)
	return ch.Context(ctx, ch.WithSettings(settings)), cancel
}
