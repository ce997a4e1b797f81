package main

import (
	"context"
	"math"
	"runtime/debug"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/compactor"
	"github.com/skeinhq/skein/pkg/compactor/partition"
	"github.com/skeinhq/skein/pkg/quota"
)

func stage() app.Stage {
	cfg := compactor.DefaultConfig()
	var quotaFile, signingKeys string
	return app.Stage{
		Name:  "compactor",
		Short: "Fold skein.events into run records, branch snapshots and dead letters",
		Long: `Fold skein.events into run records, branch snapshots and dead letters, exactly once.

Start several to share the partitions. Each needs its own --instance-id, which stays the same over restarts
(a pod's name), and a --dir. A lost --dir is rebuilt from Kafka.`,
		Example: `  compactor --brokers kafka-0:9092,kafka-1:9092 --instance-id compactor-0 --dir /var/lib/skein`,
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&cfg.Dir, "dir", "", "`FOLDER` for the local stores")
			f.StringVar(&cfg.InstanceID, "instance-id", "", "unique `NAME` of this process in the group, the same after a restart; by default the host name")
			f.DurationVar(&cfg.CheckpointInterval, "checkpoint-interval", cfg.CheckpointInterval, "minimum time between two records of an open run; after ten times that, one that has changed is always written")
			f.DurationVar(&cfg.IdleLimit, "idle-limit", cfg.IdleLimit, "how long a run may be silent before it is abandoned")
			app.BytesVar(f, &cfg.OpenRunBytes, "open-run-bytes", "approximate memory for open runs; above it, the least recently used runs are written out and evicted")
			f.StringVar(&quotaFile, "quotas", "", "YAML `FILE` with the quotas of tenants, of which the compactor takes open_runs and open_run_bytes; reloaded when it changes; by default none but for "+strconv.Itoa(partition.DefaultOpenRuns)+" open runs")
			f.IntVar(&cfg.TenantMetrics, "tenant-metrics", 20, "name the `N` largest tenants in metrics; all others count as \"other\"; 0 means no metrics by tenant")
			app.KeepEventsFlag(f, &cfg.KeepEvents)
			app.RequireIngestFlag(f, &signingKeys)
		},
		Check: func(*app.Process) error {
			if cfg.Dir == "" {
				return app.Usagef("no folder for the local stores: pass --dir FOLDER (or SKEIN_DIR)")
			}
			if err := app.NameInstance(&cfg.InstanceID); err != nil {
				return err
			}
			cfg.CheckpointMax = 10 * cfg.CheckpointInterval
			if err := cfg.Validate(); err != nil {
				return app.Usagef("%w", err)
			}
			if cfg.TenantMetrics < 0 {
				return app.Usagef("checking tenant-metrics: %d is negative", cfg.TenantMetrics)
			}
			return nil
		},
		Start: func(ctx context.Context, p *app.Process) error {
			if err := p.RequireIngest(ctx, signingKeys); err != nil {
				return err
			}
			if err := p.AwaitKafka(ctx); err != nil {
				return err
			}
			limitMemory(cfg)
			quotas, err := quota.Open(quota.Config{
				Path: quotaFile, Replicas: 1, Stage: quota.Limits{OpenRuns: partition.DefaultOpenRuns}, Logger: p.Logger, Registerer: p.Registry,
				Remark: func(l quota.Limits) string { return quotaOf(l).Remark(p.Partitions()) },
			})
			if err != nil {
				return err
			}
			p.Group.Go(ctx, "quotas", quotas.Run)
			cfg.Quota = func(tenant string) partition.Quota { return quotaOf(quotas.Limits(tenant)) }
			cfg.Registerer, cfg.Tracer = p.Registry, p.Tracer
			s, err := compactor.New(cfg, p.Kafka, p.Logger)
			if err != nil {
				return err
			}
			if err := p.WatchStalls(ctx, "compactor", p.Kafka.Topics().Events, p.Kafka.CompactorGroup(), s.Lag()); err != nil {
				return err
			}
			p.Admin.AddCheck("session", func(context.Context) error { return s.Ready() })
			p.Admin.AddRemark("versions", func(context.Context) error { return s.CheckVersions() })
			p.Admin.AddBeat("compactor", s.Turned)
			p.Group.Go(ctx, "compactor", s.Run)
			return nil
		},
	}
}

// quotaOf returns the limits of a tenant that the compactor enforces.
func quotaOf(l quota.Limits) partition.Quota {
	return partition.Quota{OpenRuns: l.OpenRuns, OpenRunBytes: l.OpenRunBytes}
}

// limitMemory sets a memory limit above what the settings let the compactor hold. Large runs on several partitions hold more for seconds,
// in which the collector would take most of the processor time. So with a GOMEMLIMIT, as in the chart, the limit is at least
// two thirds of what app.Main makes of it. A lower GOMEMLIMIT wins.
func limitMemory(cfg compactor.Config) {
	limit := int64(2*(cfg.OpenRunBytes+cfg.CacheBytes) + 128<<20)
	if given := debug.SetMemoryLimit(-1); given != math.MaxInt64 {
		limit = max(limit, given/3*2)
	}
	app.LimitMemory(limit)
}
