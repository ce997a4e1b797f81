package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/stores"
	"github.com/skeinhq/skein/pkg/indexer"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/store/clickhouse"
)

// migrateTimeout bounds a migration. It is long because changes of large tables take time.
const migrateTimeout = 30 * time.Minute

func newMigrate(out *output) *cobra.Command {
	var choice stores.Choice
	var at app.KafkaFlags
	var rebuild bool
	cmd := &cobra.Command{
		Use:     "migrate",
		GroupID: groupOperate,
		Short:   "Create or upgrade the schema of the lineage store",
		Long: `Create the database and its tables, or upgrade them to this version. Running it again changes nothing, and two
may run at the same time. Indexer and query wait until it is done, so they need no right to change tables.

With --rebuild, fill new tables from skein.runs in a database beside the live one (its name and "_rebuild"), then
exchange them with the live tables and drop the old ones. Indexer and query go on meanwhile. Use it where an
upgrade would copy large tables, after rules or settings of tables have changed, or when rows are in doubt. It
needs --brokers, the right to create and drop databases, and disk for both. The table prices stays as it is. If it
is stopped before the exchange, the live tables are as before; a signal during the exchange does not stop it.`,
		Example: `  skein migrate --clickhouse http://clickhouse:8123 --clickhouse-user skein --clickhouse-password-file /run/secrets/clickhouse
  skein migrate --rebuild --clickhouse http://clickhouse:8123 --brokers kafka-0:9092`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			app.OwnFilesOnly()
			ctx := cmd.Context()
			if !rebuild {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, migrateTimeout)
				defer cancel()
			}
			s, err := choice.Open(ctx, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Close()) }()
			if rebuild {
				return rebuildStore(ctx, out, &at, s)
			}
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
	at.Flags(cmd.Flags())
	cmd.Flags().BoolVar(&rebuild, "rebuild", false, "fill new tables from skein.runs and exchange them with the live ones; ClickHouse only")
	return cmd
}

// rebuildStore fills a second database beside the store's, then exchanges the tables.
func rebuildStore(ctx context.Context, out *output, at *app.KafkaFlags, s stores.Store) (err error) {
	live, is := s.(*clickhouse.Store)
	if !is {
		return app.Usagef("--rebuild is for ClickHouse; to rebuild a SQLite file, stop indexer and query, " +
			"delete the file and the indexer's consumer group, and start them")
	}
	k, err := at.Config("skein-migrate")
	if err != nil {
		return err
	}
	cfg := indexer.DefaultConfig(k)
	cfg.Registerer = prometheus.NewRegistry()
	cfg.Logger = slog.New(slog.NewTextHandler(out.stderr, nil))
	if err := cfg.Validate(); err != nil {
		return err
	}
	adm, err := kafka.NewAdmin(k)
	if err != nil {
		return err
	}
	defer adm.Close()
	set, err := kafka.ReadTopicSet(ctx, adm, k.Topics())
	if err != nil {
		return err
	}
	beside, err := live.Beside(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, beside.Close()) }()
	exchanged := false
	defer func() {
		// Do not leave the second database: it has rows of all tenants, and no erasure or retention reaches it.
		if err != nil && !exchanged {
			err = errors.Join(err, beside.Drop(context.WithoutCancel(ctx)))
		}
	}()
	if err := beside.Follow(ctx, set.IDs[1].String()); err != nil {
		return err
	}
	began := time.Now()
	r := rebuilding{out: out, cfg: cfg, adm: adm, topic: k.Topics().Runs, read: map[int32]kafka.Span{}}
	// The first fill may take hours. The second one adds the records written meanwhile, so that the exchange has little left to add.
	for range 2 {
		if err := r.fill(ctx, beside); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	exchanged = true
	if err := r.exchange(ctx, live, beside); err != nil {
		return err
	}
	took := time.Since(began)
	text := fmt.Sprintf("rebuilt from %s in %s (%.0f a second)\n", count(int(r.filled.Records), "record"), took.Round(100*time.Millisecond),
		float64(r.filled.Records)/took.Seconds())
	if n := r.filled.Undecodable + r.filled.Refused; n > 0 {
		text += fmt.Sprintf("left out, as by the indexer: %d that cannot be decoded, %d that the store refuses\n",
			r.filled.Undecodable, r.filled.Refused)
	}
	return out.text(text)
}

// rebuilding is the progress of a rebuild.
type rebuilding struct {
	out    *output
	cfg    indexer.Config
	adm    *kadm.Client
	topic  string
	read   map[int32]kafka.Span
	filled indexer.Filled
}

const (
	// exchangeTimeout bounds the exchange of the tables, including the last fill.
	exchangeTimeout = time.Hour
	// lastTries is how often the last fill is tried, and lastWait the pause between two tries. Each fill also retries its writes.
	lastTries = 5
	lastWait  = 10 * time.Second
)

// exchange exchanges the filled tables with the live ones, then fills in the records written meanwhile. No signal interrupts
// it, since the live tables are incomplete until it returns.
func (r *rebuilding) exchange(ctx context.Context, live, beside *clickhouse.Store) error {
	stop := context.AfterFunc(ctx, func() {
		_, _ = fmt.Fprintln(r.out.stderr, "exchanging tables: it ends when the live ones are complete")
	})
	defer stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangeTimeout)
	defer cancel()
	err := live.Replace(ctx, beside)
	for try := 1; err == nil; try++ {
		// Indexers wrote to the old or the new tables during the exchange.
		failed := r.fill(ctx, live)
		if failed == nil {
			break
		}
		if try == lastTries || ctx.Err() != nil {
			err = failed
			break
		}
		r.cfg.Logger.WarnContext(ctx, "reading what came meanwhile failed; trying again", "error", failed)
		time.Sleep(lastWait)
	}
	if err == nil {
		err = live.Ping(ctx)
	}
	if err != nil {
		return fmt.Errorf("THE LIVE TABLES ARE INCOMPLETE: records of the last minutes may be missing, and views too. "+
			"Run the same command again; it drops the database %s, which still has rows: %w", beside.Database(), err)
	}
	return beside.Drop(ctx)
}

// fill writes the records of skein.runs that earlier fills have not read.
func (r *rebuilding) fill(ctx context.Context, s *clickhouse.Store) error {
	now, err := kafka.Spans(ctx, r.adm, r.topic)
	if err != nil {
		return err
	}
	bar := newProgress(r.out, "offsets read")
	defer bar.end()
	unread := map[int32]kafka.Span{}
	for p, s := range now {
		s.Start = max(s.Start, r.read[p].End)
		unread[p] = s
	}
	filled, err := indexer.Fill(ctx, r.cfg, s, unread, func(read, total int64) { bar.step(int(read), int(total)) })
	if err != nil {
		return err
	}
	r.filled.Add(filled)
	r.read = now
	return nil
}
