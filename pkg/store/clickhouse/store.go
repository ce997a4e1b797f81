package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/skeinhq/skein/pkg/store"
)

// Store is a lineage store in ClickHouse. It is a store.Writer and a store.Reader; all its methods may
// be called at the same time.
type Store struct {
	opts   Options
	driver *ch.Options
	conn   driver.Conn // a pool
	http   *sharedTransport
	types  sync.Map // of columns, by table: []ch.ColumnNameAndType
}

var (
	_ store.Writer   = (*Store)(nil)
	_ store.Reader   = (*Store)(nil)
	_ store.Migrator = (*Store)(nil)
	_ store.Expirer  = (*Store)(nil)
)

// New returns a store without asking the server for anything.
func New(o Options) (*Store, error) {
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
	return &Store{opts: o.withDefaults(), driver: d, conn: c, http: shared}, nil
}

// Open is New and Ping: it fails where the server does not answer, refuses the credentials, or has a
// schema that is too old for this binary.
func Open(ctx context.Context, o Options) (*Store, error) {
	s, err := New(o)
	if err != nil {
		return nil, err
	}
	if err := s.Ping(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close implements store.Writer. It waits for no call that is under way.
func (s *Store) Close() error {
	err := s.conn.Close()
	s.http.close()
	if err != nil {
		return fmt.Errorf("closing ClickHouse: %w", err)
	}
	return nil
}

// Ping implements store.Reader: the server answers and has a schema that this binary can use.
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
func (s *Store) reading(ctx context.Context) (context.Context, context.CancelFunc) {
	return s.readingWithin(ctx, s.opts.QueryTimeout, nil)
}

// readingWithin is reading with a limit of time and settings of its own.
func (s *Store) readingWithin(ctx context.Context, limit time.Duration, more ch.Settings) (context.Context, context.CancelFunc) {
	settings := ch.Settings{
		// FINAL over a short range is no faster with all cores, and many readers share them.
		"max_threads": 2,
		// Without it a read with FINAL takes all columns of every granule that the primary key leaves. The server moves only
		// conditions on the sorting key, which all versions of a row share, so FINAL still sees every version.
		"optimize_move_to_prewhere_if_final": 1, //nolint:misspell // the server's spelling
	}
	maps.Copy(settings, more)
	return s.bounded(ctx, limit, settings)
}

// writing returns a context for one statement of a write.
func (s *Store) writing(ctx context.Context, more ch.Settings) (context.Context, context.CancelFunc) {
	settings := ch.Settings{
		// The acknowledgement must mean that the rows are in a part, and blocks are large already.
		"async_insert": 0,
		// Tokens work whatever the server's profile says.
		"insert_deduplicate": 1,
		// Merges make the indexes, of words above all: that of a message takes longer than the rest of its insert.
		"materialize_skip_indexes_on_insert": 0, //nolint:misspell // the server's spelling
		// A block that runs has and runs_by_time not, as the server died between them, comes to the latter when it is sent again.
		"deduplicate_blocks_in_dependent_materialized_views": 1, //nolint:misspell // the server's spelling
		// The server has a deletion in writing and carries it out, also after a restart. Nothing
		// waits for it: what it deletes is hidden by its tombstone.
		"lightweight_deletes_sync": 0,
	}
	maps.Copy(settings, more)
	return s.bounded(ctx, s.opts.InsertTimeout, settings)
}

// bounded ends a statement on both sides: the server stops work that nobody waits for (over HTTP it
// does not notice that the client has gone), and the client does not wait for a server that hangs.
func (s *Store) bounded(ctx context.Context, limit time.Duration, settings ch.Settings) (context.Context, context.CancelFunc) {
	const grace = 2 * time.Second
	settings["max_execution_time"] = max(1, int(limit.Seconds()))
	ctx, cancel := context.WithTimeout(ctx, limit+grace)
	return ch.Context(ctx, ch.WithSettings(settings)), cancel
}
