package main

import (
	"context"
	"crypto/tls"
	"errors"

	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/ingest"
	"github.com/skeinhq/skein/pkg/ingest/agents"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/quota"
)

// maxConnections is twice the number of requests that fit into the memory for requests. Without requests they take 340 MiB.
const maxConnections = 16_384

func stage() app.Stage {
	var api app.API
	var agentsFile, queryCAs, signingKeys string
	api.Drain.Timeout = app.DrainTimeout
	cfg := ingest.DefaultConfig(kafka.Config{})
	return app.Stage{
		Name:  "ingest",
		Short: "Accept the events of agents over HTTP and write them to Kafka",
		Long: `Accept the events and inputs of runs over HTTP and write them to skein.events, byte for byte. A request succeeds
only after Kafka has acknowledged. Processes hold no state: start as many as you like.

With --agents it is also a proxy: POST /v1/agents/NAME takes a RunAgentInput, answers with that agent's
stream, each event byte for byte and numbered, and publishes input and events on the way.

Every request needs an API key with the scope publish; the key names the tenant. skein keys new creates one.`,
		Example: `  ingest --brokers kafka-0:9092,kafka-1:9092 --listen 0.0.0.0:8420 --api-keys /etc/skein/api-keys.yaml`,
		Flags: func(f *pflag.FlagSet) {
			api.Flags(f, "127.0.0.1:8420")
			f.StringVar(&agentsFile, "agents", "", "YAML `FILE` with the agents that the proxy may call; by default none")
			app.RequireIngestFlag(f, &signingKeys)
			f.StringVar(&cfg.QueryURL, "query-url", "", "`URL` at which callers reach the query stage: refusals of reads name it, and the page that it serves may stop runs here")
			f.StringVar(&cfg.QueryInternalURL, "query-internal-url", "", "`URL` at which this process reaches the query stage, to ask whether a run that is to be stopped has ended; by default --query-url")
			f.StringVar(&queryCAs, "query-ca-file", "", "PEM `FILE` of the CAs to trust for an https:// URL of query; by default the system's")
			app.BytesVar(f, &cfg.Memory, "memory", "memory for all requests and proxied runs together, including what Kafka has not acknowledged; one tenant may use three quarters of it, the events of one run an eighth")
			f.DurationVar(&api.Drain.Timeout, "drain-timeout", api.Drain.Timeout, "how long requests and runs in progress may take to end after a signal; then runs end with RUN_ERROR. Allow the process this, --ack-timeout and 15s more to stop")
			f.DurationVar(&cfg.Heartbeat, "stream-heartbeat", cfg.Heartbeat, "longest pause on the stream of a proxied run or of acknowledgements; then a comment is sent, or the last acknowledgement again")
			f.DurationVar(&cfg.AckTimeout, "ack-timeout", cfg.AckTimeout, "how long to wait for an acknowledgement from Kafka before answering 503; at most "+ingest.MaxAckTimeout.String())
		},
		Check: func(p *app.Process) error {
			cfg.Kafka = p.Kafka
			if agentsFile != "" {
				var err error
				if cfg.Agents, err = agents.Read(agentsFile); err != nil {
					return app.Usagef("%w", err)
				}
			}
			if queryCAs != "" {
				pool, err := app.ReadCAs(queryCAs)
				if err != nil {
					return app.Usagef("reading query-ca-file: %w", err)
				}
				cfg.QueryTLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
			}
			if err := cfg.Validate(); err != nil {
				return app.Usagef("%w", err)
			}
			api.CORS.AllowPage(cfg.QueryURL)
			if api.Drain.Timeout < 0 {
				return app.Usagef("checking drain-timeout: %s is below 0", api.Drain.Timeout)
			}
			return api.Check()
		},
		Start: func(ctx context.Context, p *app.Process) error {
			auth, err := api.Authenticator(ctx, p)
			if err != nil {
				return err
			}
			if err := p.RequireIngest(ctx, signingKeys); err != nil {
				return err
			}
			cfg.Kafka = p.Kafka
			if err := p.AwaitKafka(ctx); err != nil {
				return err
			}
			// Memory already bounds a tenant's streams, so there is no other limit by default.
			cfg.TenantMetrics, cfg.Tracer = api.TenantMetrics, p.Tracer
			if cfg.Quotas, err = api.Quotas(ctx, p, quota.Limits{}); err != nil {
				return err
			}
			s, err := ingest.New(cfg, auth)
			if err != nil {
				return err
			}
			p.Admin.AddCheck("ingest", func(context.Context) error { return s.Ready() })
			p.Admin.AddRemark("versions", func(context.Context) error { return s.CheckVersions() })
			p.Group.Go(ctx, "ingest", func(ctx context.Context) error {
				// The group has stopped the HTTP listener before it stops this part.
				return errors.Join(s.Run(ctx), s.Close())
			})
			for _, a := range cfg.Agents {
				api.CORS.Headers = append(api.CORS.Headers, a.Headers...)
			}
			api.Connections = maxConnections
			api.Drain.Begin, api.Drain.End = s.Drain, s.Stop
			return api.Serve(ctx, p, s.Handler())
		},
	}
}
