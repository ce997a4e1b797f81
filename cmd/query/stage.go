package main

import (
	"context"
	"errors"

	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/stores"
	"github.com/skeinhq/skein/pkg/query"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/web"
)

// maxConnections exceeds the number of requests for which the default memory suffices.
const maxConnections = 16_384

func stage() app.Stage {
	var choice stores.Choice
	var api app.API
	var links []string
	var signingKeys string
	api.Drain.Timeout = app.DrainTimeout
	cfg := query.DefaultConfig()
	return app.Stage{
		Name:  "query",
		Short: "Answer questions about threads and runs over HTTP",
		Long: `Answer questions about threads and runs over HTTP; GET /openapi.json describes the API.

It reads the lineage store that the indexer writes, and holds no state but caches: start as many as you like. Open runs, live
streams, replays, proofs and dead letters are read from Kafka; while Kafka is away it answers everything else.

Every request needs an API key with the scope read; the key names the tenant. skein keys new creates one.`,
		Example: `  query --brokers kafka-0:9092 --clickhouse http://clickhouse-0:8123 --listen 0.0.0.0:8420 \
    --api-keys /etc/skein/api-keys.yaml`,
		Flags: func(f *pflag.FlagSet) {
			choice.Flags(f)
			api.Flags(f, "127.0.0.1:8422")
			app.BytesVar(f, &cfg.Memory, "memory", "memory for requests, live streams, recently stepped-through runs and the latest events; tenants share it: one answer takes at most a third of it")
			f.StringVar(&cfg.IngestURL, "ingest-url", "", "`URL` at which callers reach the ingest stage: refusals of writes name it, and the page stops runs there")
			f.DurationVar(&cfg.StreamHeartbeat, "stream-heartbeat", cfg.StreamHeartbeat, "longest pause on a live stream; then a comment is sent")
			app.PageLinkFlag(f, &links)
			app.RequireIngestFlag(f, &signingKeys)
		},
		Check: func(p *app.Process) error {
			cfg.Tail.Kafka = p.Kafka
			var err error
			if cfg.Links, err = web.ParseLinks(links); err != nil {
				return app.Usagef("%w", err)
			}
			if err := errors.Join(cfg.Validate(), cfg.Tail.Kafka.Validate()); err != nil {
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
			if err := p.RequireIngest(ctx, signingKeys); err != nil {
				return err
			}
			cfg.Tail.Kafka = p.Kafka
			st, err := choice.Open(ctx, p.Logger)
			if err != nil {
				return err
			}
			p.Group.Closing(ctx, "store", st.Close)
			p.Admin.AddDependency("store", st.Ping)
			if err := p.MentionKafka(ctx); err != nil {
				return err
			}
			cfg.TenantMetrics, cfg.Tracer = api.TenantMetrics, p.Tracer
			if cfg.Quotas, err = api.Quotas(ctx, p, quota.Limits{}); err != nil {
				return err
			}
			cfg.Logger, cfg.Registerer = p.Logger, p.Registry
			s, err := query.New(cfg, st, auth)
			if err != nil {
				return err
			}
			p.Group.Closing(ctx, "Kafka readers", func() error {
				s.Close()
				return nil
			})
			api.Connections = maxConnections
			api.Drain.Begin, api.Drain.End = s.Drain, func() {}
			return api.Serve(ctx, p, s.Handler())
		},
	}
}
