package cli

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/stores"
)

// migrateTimeout bounds a migration; changes of large tables take their time.
const migrateTimeout = 30 * time.Minute

func newMigrate(out *output) *cobra.Command {
	var choice stores.Choice
	cmd := &cobra.Command{
		Use:     "migrate",
		GroupID: groupOperate,
		Short:   "Create or upgrade the schema of the lineage store",
		Long: `Create the database and its tables, or upgrade them to this version. Running it again changes nothing, and two
may run at the same time. Indexer and query wait until it is done, so they need no right to change tables.`,
		Example: `  skein migrate --clickhouse http://clickhouse:8123 --clickhouse-user skein --clickhouse-password-file /run/secrets/clickhouse`,
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			app.OwnFilesOnly()
			ctx, cancel := context.WithTimeout(cmd.Context(), migrateTimeout)
			defer cancel()
			s, err := choice.Open(ctx, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Close()) }()
			if err := s.Migrate(ctx); err != nil {
				return err
			}
			if err := s.Ping(ctx); err != nil {
				return err
			}
			return out.text("the schema is up to date\n")
		},
	}
	choice.Flags(cmd.Flags())
	return cmd
}
