package main

import (
	"context"

	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/stores"
	"github.com/skeinhq/skein/pkg/query"
)

func stage() app.Stage {
	var choice stores.Choice
	var api app.API
	cfg := query.DefaultConfig()
	return app.Stage{
		Name:  "query",
		Short: "Answer questions about threads and runs over HTTP",
		Long: `Answer questions about threads and runs over HTTP; GET /openapi.json describes the API.

It reads the lineage store that the indexer writes and holds no state but what it has read last: start as many as you like. Open runs,
replays, proofs and dead letters are read from Kafka; while that is away it answers the rest.

Every request needs an API key that may read; the tenant is the key's. skein keys new makes one.`,
		Example: `  query --brokers kafka-0:9092 --clickhouse http://clickhouse-0:8123 --listen 0.0.0.0:8420 \
    --api-keys /etc/skein/api-keys.yaml`,
		Flags: func(f *pflag.FlagSet) {
			choice.Flags(f)
			api.Flags(f)
			app.BytesVar(f, &cfg.TimelineBytes, "timeline-memory", "memory for the runs that were stepped through last; one may have an eighth of it")
		},
		Check: func(*app.Process) error {
			if err := api.Check(); err != nil {
				return err
			}
			return choice.Check()
		},
		Start: func(ctx context.Context, p *app.Process) error {
			auth, err := api.Authenticator(ctx, p)
			if err != nil {
				return err
			}
			st, err := choice.Open(ctx, p.Logger)
			if err != nil {
				return err
			}
			p.Group.Go(ctx, "store", func(ctx context.Context) error {
				<-ctx.Done()
				return st.Close()
			})
			p.Admin.AddDependency("store", st.Ping)
			if err := p.MentionKafka(ctx); err != nil {
				return err
			}
			cfg.Logger, cfg.Registerer = p.Logger, p.Registry
			records := query.NewKafkaRecords(p.Kafka())
			defer records.Close()
			s, err := query.New(cfg, st, records, query.NewRawLog(p.Kafka()), auth)
			if err != nil {
				return err
			}
			return api.Serve(ctx, p, s.Handler())
		},
	}
}
