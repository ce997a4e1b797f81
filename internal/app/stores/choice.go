package stores

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/store/clickhouse"
	"github.com/skeinhq/skein/pkg/store/sqlite"
)

// Store is either kind, with both its sides.
type Store interface {
	store.Writer
	store.Reader
}

// Choice is what the flags say.
type Choice struct {
	clickhouse     []string
	database, user string
	passwordFile   string
	cluster        string
	replicated     bool
	sqlite         string
}

// Flags adds the flags.
func (c *Choice) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&c.clickhouse, "clickhouse", nil, "ClickHouse, `URL`s separated by commas: clickhouse://HOST:PORT, http://HOST:PORT or https://HOST:PORT")
	f.StringVar(&c.database, "clickhouse-database", clickhouse.DefaultDatabase, "`NAME` of the database")
	f.StringVar(&c.user, "clickhouse-user", "default", "`NAME` of the user")
	f.StringVar(&c.passwordFile, "clickhouse-password-file", "", "`FILE` with the user's password; no file is no password")
	f.StringVar(&c.cluster, "clickhouse-cluster", "", "`NAME` of the cluster that tables are made on, where it is not one server")
	f.BoolVar(&c.replicated, "clickhouse-replicated", false, "make replicated tables")
	f.StringVar(&c.sqlite, "sqlite", "", "`FILE` of a store for one machine, in the place of ClickHouse")
}

// Open returns the store. A ClickHouse is not asked for anything yet, so that a stage starts while it
// is away, and says so by its readiness.
func (c *Choice) Open(ctx context.Context, logger *slog.Logger) (Store, error) {
	switch {
	case len(c.clickhouse) > 0 && c.sqlite != "":
		return nil, app.Usagef("two stores: say either --clickhouse or --sqlite")
	case len(c.clickhouse) > 0:
		return c.openClickHouse(logger)
	case c.sqlite != "":
		return openSQLite(ctx, c.sqlite)
	default:
		return nil, app.Usagef("no store: say --clickhouse URL (or SKEIN_CLICKHOUSE), or --sqlite FILE for one machine")
	}
}

func (c *Choice) openClickHouse(logger *slog.Logger) (Store, error) {
	o := clickhouse.Options{
		Addrs: c.clickhouse, Database: c.database, Username: c.user,
		Cluster: c.cluster, Replicated: c.replicated, Logger: logger,
	}
	if c.passwordFile != "" {
		password, err := os.ReadFile(c.passwordFile)
		if err != nil {
			return nil, fmt.Errorf("reading the password of ClickHouse: %w", err)
		}
		o.Password = strings.TrimRight(string(password), "\r\n")
	}
	if err := o.Validate(); err != nil {
		return nil, app.Usagef("%w", err)
	}
	s, err := clickhouse.New(o)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func openSQLite(ctx context.Context, path string) (Store, error) {
	s, err := sqlite.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	return s, nil
}
