package main

import (
	"context"
	"time"

	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/stores"
	"github.com/skeinhq/skein/pkg/indexer"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/store"
)

func stage() app.Stage {
	var choice stores.Choice
	var delay time.Duration
	return app.Stage{
		Name:  "indexer",
		Short: "Write run records to the lineage store",
		Long: `Write the run records of skein.runs to the lineage store: ClickHouse or, on one machine, a SQLite file,
which one indexer writes and query processes beside it read. It waits until the topics (skein topics create)
and the store's schema (skein migrate) are there. Start more of them on ClickHouse to share out the
partitions.`,
		Example: `  indexer --brokers kafka-0:9092 --clickhouse http://clickhouse-0:8123 --clickhouse-user skein`,
		Flags: func(f *pflag.FlagSet) {
			choice.Flags(f)
			f.DurationVar(&delay, "max-delay", indexer.DefaultConfig(kafka.Config{}).MaxDelay, "how long records are gathered before they are written")
		},
		Check: func(p *app.Process) error {
			cfg := indexer.DefaultConfig(p.Kafka())
			cfg.MaxDelay = delay
			if err := cfg.Validate(); err != nil {
				return app.Usagef("%w", err)
			}
			return choice.Check()
		},
		Start: func(ctx context.Context, p *app.Process) error {
			st, err := choice.Open(ctx, p.Logger)
			if err != nil {
				return err
			}
			p.Group.Go(ctx, "store", func(ctx context.Context) error {
				<-ctx.Done()
				return st.Close()
			})
			if err := p.CheckKafka(ctx); err != nil {
				return err
			}
			p.Admin.AddDependency("store", st.Ping)
			if err := p.AwaitTopics(ctx); err != nil {
				return err
			}
			if err := p.Await(ctx, "store", st.Ping, store.ErrSchema); err != nil {
				return err
			}
			cfg := indexer.DefaultConfig(p.Kafka())
			cfg.MaxDelay, cfg.Logger, cfg.Registerer = delay, p.Logger, p.Registry
			s, err := indexer.New(cfg, st)
			if err != nil {
				return err
			}
			if err := p.WatchStalls(ctx, "indexer", p.Kafka().Topics().Runs, cfg.Group, s.Lag()); err != nil {
				return err
			}
			p.Admin.AddCheck("index", func(context.Context) error { return s.Ready() })
			p.Admin.AddBeat("indexer", s.Turned)
			p.Group.Go(ctx, "indexer", s.Run)
			return nil
		},
	}
}
