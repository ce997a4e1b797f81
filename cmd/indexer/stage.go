package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/stores"
	"github.com/skeinhq/skein/pkg/indexer"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/store/clickhouse"
)

func stage() app.Stage {
	var settings settings
	return app.Stage{
		Name:  "indexer",
		Short: "Write run records to the lineage store",
		Long: `Write the run records of skein.runs to the lineage store: ClickHouse or, on one machine, a SQLite file,
which one indexer writes and query processes on the same machine read. It waits until the topics (skein topics
create) and the store's schema (skein migrate) exist. With ClickHouse, start several to share the partitions,
each with an --instance-id of its own.`,
		Example: `  indexer --brokers kafka-0:9092 --clickhouse http://clickhouse-0:8123 --clickhouse-user skein`,
		Flags:   settings.add,
		Check: func(p *app.Process) error {
			if err := app.NameInstance(&settings.instance); err != nil {
				return err
			}
			cfg := settings.config(p.Kafka)
			if err := cfg.Validate(); err != nil {
				return app.Usagef("%w", err)
			}
			if cfg.MaxDelay < clickhouseDelay && !settings.store.IsSQLite() {
				return app.Usagef("--max-delay must be at least %v with ClickHouse, which merges the parts of each block, not %v", clickhouseDelay, cfg.MaxDelay)
			}
			if settings.purge < time.Minute {
				return app.Usagef("--purge-within must be at least 1m, not %v", settings.purge)
			}
			var err error
			if settings.retention, err = indexer.ParseRetention(settings.retain); err != nil {
				return app.Usagef("%w", err)
			}
			return settings.store.Check()
		},
		Start: func(ctx context.Context, p *app.Process) error {
			st, err := settings.store.Open(ctx, p.Logger)
			if err != nil {
				return err
			}
			p.Group.Closing(ctx, "store", st.Close)
			p.Admin.AddDependency("store", st.Ping)
			if err := p.AwaitKafka(ctx); err != nil {
				return err
			}
			if err := p.Await(ctx, "store", st.Ping, store.ErrSchema); err != nil {
				return err
			}
			// Two blocks, the fetched records and the data for the store take about half of this. Go lets garbage grow to as much again.
			app.LimitMemory(400 << 20)
			cfg := settings.config(p.Kafka)
			cfg.Logger, cfg.Registerer, cfg.Tracer = p.Logger, p.Registry, p.Tracer
			s, err := indexer.New(cfg, st)
			if err != nil {
				return err
			}
			if err := p.WatchStalls(ctx, "indexer", p.Kafka.Topics().Runs, p.Kafka.IndexerGroup(), s.Lag()); err != nil {
				return err
			}
			p.Admin.AddCheck("index", func(context.Context) error { return s.Ready() })
			p.Admin.AddRemark("versions", func(context.Context) error { return s.CheckVersions() })
			p.Admin.AddBeat("indexer", s.Turned)
			if ch, is := st.(*clickhouse.Store); is {
				p.Admin.AddRemark("purge", func(context.Context) error { return ch.Overdue() })
				p.Group.Go(ctx, "purge", func(ctx context.Context) error { return ch.KeepSweeping(ctx, settings.purge, p.Logger) })
			}
			p.Group.Go(ctx, "retention", func(ctx context.Context) error { return s.Retain(ctx, st, settings.retention) })
			p.Group.Go(ctx, "indexer", s.Run)
			return nil
		},
	}
}

// sqliteDelay is the default of --max-delay with SQLite, which takes small blocks at little cost.
const sqliteDelay = 100 * time.Millisecond

// clickhouseDelay is the minimum of --max-delay with ClickHouse.
const clickhouseDelay = 500 * time.Millisecond

// settings are the values of the flags.
type settings struct {
	store     stores.Choice
	maxDelay  time.Duration
	instance  string
	purge     time.Duration
	retain    []string
	retention indexer.Retention // parsed from retain
	flags     *pflag.FlagSet
}

func (s *settings) add(f *pflag.FlagSet) {
	s.flags = f
	s.store.Flags(f)
	f.StringVar(&s.instance, "instance-id", "", "unique `NAME` of this process in the group, the same after a restart; by default the host name")
	f.DurationVar(&s.maxDelay, "max-delay", indexer.DefaultConfig(kafka.Config{}).MaxDelay,
		fmt.Sprintf("least time between two blocks, in which records are collected; at least %v with ClickHouse; with --sqlite, %v by default", clickhouseDelay, sqliteDelay))
	f.StringSliceVar(&s.retain, "retain", nil, "for how many days the store keeps a tenant's threads behind their last run, `TENANT=DAYS` separated by commas, *=DAYS for all other tenants; without it, for ever. Records stay in Kafka")
	f.DurationVar(&s.purge, "purge-within", clickhouse.DefaultSweepEvery,
		"how soon ClickHouse must begin to remove erased rows from disk; it hides them at once. Removing rewrites the parts that held them")
}

// config returns the indexer's configuration. A --max-delay that is set applies to either store.
func (s *settings) config(k kafka.Config) indexer.Config {
	cfg := indexer.DefaultConfig(k)
	cfg.MaxDelay, cfg.InstanceID = s.maxDelay, s.instance
	if s.store.IsSQLite() && !s.flags.Changed("max-delay") {
		cfg.MaxDelay = sqliteDelay
	}
	return cfg
}
