package main

import (
	"context"
	"errors"

	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/stores"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/query"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/tail"
)

func stage() app.Stage {
	var choice stores.Choice
	var api app.API
	api.Drain.Timeout = app.DrainTimeout
	cfg, follow := query.DefaultConfig(), tail.DefaultConfig(kafka.Config{})
	return app.Stage{
		Name:  "query",
		Short: "Answer questions about threads and runs over HTTP",
		Long: `Answer questions about threads and runs over HTTP; GET /openapi.json describes the API.

It reads the lineage store that the indexer writes and holds no state but what it has read last: start as many as you like. Open runs, live
streams, replays, proofs and dead letters are read from Kafka; while that is away it answers the rest.

Every request needs an API key that may read; the tenant is the key's. skein keys new makes one.`,
		Example: `  query --brokers kafka-0:9092 --clickhouse http://clickhouse-0:8123 --listen 0.0.0.0:8420 \
    --api-keys /etc/skein/api-keys.yaml`,
		Flags: func(f *pflag.FlagSet) {
			choice.Flags(f)
			api.Flags(f)
			app.BytesVar(f, &cfg.TimelineBytes, "timeline-memory", "memory for the runs that were stepped through last; one may have a quarter of it")
			f.IntVar(&cfg.Reads, "reads", cfg.Reads, "requests that may read at the same time; tenants share them: one may have as many as are left free")
			f.IntVar(&cfg.LargeReads, "large-reads", cfg.LargeReads, "of them those that may read much at the same time: long threads, raw events, proofs; shared in the same way")
			app.BytesVar(f, &cfg.ReadBytes, "read-memory", "memory for what requests read and fold; shared in the same way, so one answer takes half of it at most")
			f.IntVar(&cfg.Waiting, "waiting", cfg.Waiting, "requests that may wait for their turn or for the index; shared in the same way")
			f.Int64Var(&cfg.Search.Rows, "search-rows", cfg.Search.Rows, "rows that one search or statistic may read")
			f.DurationVar(&cfg.Search.Time, "search-time", cfg.Search.Time, "time that one search or statistic may take")
			f.IntVar(&cfg.Streams, "streams", cfg.Streams, "live streams that may be open at the same time; shared in the same way")
			f.DurationVar(&cfg.StreamHeartbeat, "stream-heartbeat", cfg.StreamHeartbeat, "pause after which a live stream that has nothing to say says so")
			f.DurationVar(&cfg.StreamLife, "stream-life", cfg.StreamLife, "how long a live stream lasts at most; its reader goes on with another one. What stands between ends connections, often after 10m")
			f.DurationVar(&cfg.StreamRetry, "stream-retry", cfg.StreamRetry, "pause before a reader comes again whose live stream has ended")
			app.BytesVar(f, &follow.RingBytes, "stream-memory", "memory for the latest events, which live streams share")
		},
		Check: func(p *app.Process) error {
			follow.Kafka = p.Kafka()
			if err := errors.Join(cfg.Validate(), follow.Validate()); err != nil {
				return app.Usagef("%w", err)
			}
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
			cfg.TenantMetrics = api.TenantMetrics
			if cfg.Quotas, err = api.Quotas(ctx, p, quota.Limits{}); err != nil {
				return err
			}
			cfg.Logger, cfg.Registerer = p.Logger, p.Registry
			follow.Kafka, follow.Logger, follow.Registerer = p.Kafka(), p.Logger, p.Registry
			events, err := tail.New(follow)
			if err != nil {
				return err
			}
			records, raw := query.NewKafkaRecords(p.Kafka()), query.NewRawLog(p.Kafka())
			p.Group.Go(ctx, "Kafka readers", func(ctx context.Context) error {
				<-ctx.Done()
				events.Close()
				records.Close()
				raw.Close()
				return nil
			})
			s, err := query.New(cfg, st, records, raw, events, auth)
			if err != nil {
				return err
			}
			api.Drain.Begin, api.Drain.End = s.Drain, func() {}
			return api.Serve(ctx, p, s.Handler())
		},
	}
}
