package stores

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/store/clickhouse"
	"github.com/skeinhq/skein/pkg/store/sqlite"
)

// Store has all interfaces of a lineage store.
type Store interface {
	store.Writer
	store.Reader
	store.Migrator
	store.Expirer
}

// Choice has the flags of a lineage store.
type Choice struct {
	clickhouse     []string
	database, user string
	passwordFile   string
	caFile         string
	cluster        string
	replicated     bool
	sqlite         string
}

// Flags adds the flags.
func (c *Choice) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&c.clickhouse, "clickhouse", nil,
		"ClickHouse, `URL`s separated by commas: http://HOST:PORT, https://HOST:PORT or clickhouse://HOST:PORT")
	f.StringVar(&c.database, "clickhouse-database", clickhouse.DefaultDatabase, "`NAME` of the database")
	f.StringVar(&c.user, "clickhouse-user", "default", "`NAME` of the user")
	f.StringVar(&c.passwordFile, "clickhouse-password-file", "",
		"`FILE` with the user's password, read whenever it is needed; without it, no password")
	f.StringVar(&c.caFile, "clickhouse-ca-file", "",
		"PEM `FILE` of the CAs to trust for ClickHouse, for https:// and clickhouse:// addresses, which then both use TLS; "+
			"by default the system's. Read at the start")
	f.StringVar(&c.cluster, "clickhouse-cluster", "",
		"`NAME` of the cluster on which to create the tables, if ClickHouse is not a single server")
	f.BoolVar(&c.replicated, "clickhouse-replicated", false, "create replicated tables")
	f.StringVar(&c.sqlite, "sqlite", "", "SQLite `FILE` to use instead of ClickHouse, for one machine")
}

// IsSQLite reports whether the flags name a SQLite file.
func (c *Choice) IsSQLite() bool { return c.sqlite != "" }

// Check returns the first error in the flags, without opening anything.
func (c *Choice) Check() error {
	switch {
	case len(c.clickhouse) > 0 && c.sqlite != "":
		return app.Usagef("two stores: pass either --clickhouse or --sqlite")
	case c.sqlite != "":
		return nil
	case len(c.clickhouse) == 0:
		return app.Usagef("no store: pass --clickhouse URL (or SKEIN_CLICKHOUSE), or --sqlite FILE for one machine")
	}
	o, err := c.options()
	if err == nil {
		err = o.Validate()
	}
	if err != nil {
		return app.Usagef("%w", err)
	}
	return nil
}

// Open opens the store, after Check. It does not connect to ClickHouse, so that a stage can start while ClickHouse is away;
// readiness reports the failing connection.
func (c *Choice) Open(ctx context.Context, logger *slog.Logger) (Store, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if c.sqlite != "" {
		s, err := sqlite.Open(ctx, c.sqlite)
		if err != nil {
			return nil, err // not a nil *sqlite.Store
		}
		return s, nil
	}
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	// The driver logs errors that it also returns; the caller decides which to log.
	if logger.Enabled(ctx, slog.LevelDebug) {
		o.Logger = logger
	}
	s, err := clickhouse.New(o)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (c *Choice) options() (clickhouse.Options, error) {
	o := clickhouse.Options{
		Addrs: c.clickhouse, Database: c.database, Username: c.user,
		PasswordFile: c.passwordFile, Cluster: c.cluster, Replicated: c.replicated,
	}
	if c.caFile == "" {
		return o, nil
	}
	pool, err := app.ReadCAs(c.caFile)
	if err != nil {
		return o, fmt.Errorf("reading the CAs of ClickHouse: %w", err)
	}
	o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	return o, nil
}
