package main

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/compactor"
)

func stage() app.Stage {
	cfg := compactor.DefaultConfig()
	return app.Stage{
		Name:  "compactor",
		Short: "Fold skein.events into run records, branch snapshots and dead letters",
		Long: `Fold skein.events into run records, branch snapshots and dead letters, exactly once.

Start more of them to share out the partitions. Each needs an --instance-id of its own that it keeps
over restarts (a pod's name), and a --dir: what is in it is made again if it is lost.`,
		Example: `  compactor --brokers kafka-0:9092,kafka-1:9092 --instance-id compactor-0 --dir /var/lib/skein`,
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&cfg.Dir, "dir", "", "`FOLDER` of the local stores")
			f.StringVar(&cfg.InstanceID, "instance-id", "", "this process's own `NAME` in the group, stable over restarts; the host's name by default")
			f.StringVar(&cfg.Group, "group", cfg.Group, "consumer `GROUP`; the topic prefix and \"skein-compactor\" by default")
			f.DurationVar(&cfg.CommitInterval, "commit-interval", cfg.CommitInterval, "how long events are gathered before they are committed")
			f.DurationVar(&cfg.CheckpointInterval, "checkpoint-interval", cfg.CheckpointInterval, "least time between two records of an open run")
			f.DurationVar(&cfg.CheckpointMax, "checkpoint-max", cfg.CheckpointMax, "time after which a changed open run is written in any case")
			f.DurationVar(&cfg.IdleLimit, "idle-limit", cfg.IdleLimit, "silence after which a run is abandoned")
			app.BytesVar(f, &cfg.OpenRunBytes, "open-run-bytes", "memory that open runs may hold, about; over it, those that have been silent longest are written and leave")
			app.KeepEventsFlag(f, &cfg.KeepEvents)
			app.BytesVar(f, &cfg.RecordLimit, "record-limit", "largest record in bytes; of a run that is larger, the largest contents become references")
			app.BytesVar(f, &cfg.SnapshotBelow, "snapshot-below", "bytes under which a branch's conversation is written whole at every run's end")
		},
		Check: func(*app.Process) error {
			if cfg.Dir == "" {
				return app.Usagef("no folder for the local stores: say --dir FOLDER (or SKEIN_DIR)")
			}
			if cfg.InstanceID == "" {
				host, err := os.Hostname()
				if err != nil {
					return app.Usagef("the host has no name: say --instance-id NAME: %w", err)
				}
				cfg.InstanceID = host
			}
			if err := cfg.Validate(); err != nil {
				return app.Usagef("%w", err)
			}
			return nil
		},
		Start: func(ctx context.Context, p *app.Process) error {
			if err := p.CheckKafka(ctx); err != nil {
				return err
			}
			if err := p.AwaitTopics(ctx); err != nil {
				return err
			}
			collectLess(cfg)
			if cfg.Group == "" {
				cfg.Group = p.Kafka().CompactorGroup()
			}
			metrics := compactor.NewMetrics(p.Registry)
			s, err := compactor.New(cfg, p.Kafka(), p.Logger, metrics)
			if err != nil {
				return err
			}
			if err := p.WatchStalls(ctx, "compactor", p.Kafka().Topics().Events, cfg.Group, metrics.Lag); err != nil {
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

// collectLess lets the garbage collector run half as often as Go would have it: most of what the
// compactor allocates is needed for one event only, and little stays. The limit, above what the settings
// let it hold, has it run as often as it takes before memory grows beyond that. Who sets GOGC or a lower
// GOMEMLIMIT decides; a higher one, such as the container's limit, would leave no room for what is not on the heap.
func collectLess(cfg compactor.Config) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
	if most := int64(2*(cfg.OpenRunBytes+cfg.CacheBytes) + 128<<20); debug.SetMemoryLimit(-1) > most {
		debug.SetMemoryLimit(most)
	}
}
