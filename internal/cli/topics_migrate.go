package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/migrate"
)

func newTopicsMigrate(out *output) *cobra.Command {
	var at app.KafkaFlags
	var o migrate.Options
	cmd := &cobra.Command{
		Use:   "migrate --to-prefix TEXT",
		Short: "Copy the topic set into a new one with another partition count",
		Long: `Copy the topic set into a new one, with another prefix and partition count: raw events, run records (also
those whose raw events are gone), snapshots, dead letters, and the compactors' offsets. Records get new
positions. The old set stays unchanged.

First run it while everything goes on: it copies raw events. Then stop ingest, let the compactors come to the
end, stop them, and run it again: it copies the rest, compares both sets, and says that the new one is
complete. Then start the stages with --topic-prefix, the indexer and query with an empty lineage store.

If it is killed, run it again: it continues where it was, and copies nothing twice. Exit code 0: the new set is
complete. 1: it cannot be completed; the error says why. 4: it is not complete yet, or the sets differ.
A dry run that can read both sets exits with 0.`,
		Example: `  skein topics migrate --brokers kafka-0:9092 --to-prefix v2. --partitions 48
  skein topics migrate --brokers kafka-0:9092 --topic-prefix v2. --to-prefix v3. --partitions 96 --dry-run`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := at.Config("skein-topics")
			if err != nil {
				return err
			}
			o.From = cfg
			switch {
			case !cmd.Flags().Changed("to-prefix"):
				return app.Usagef("pass --to-prefix TEXT, the prefix of the new topic set")
			case o.ToPrefix == cfg.TopicPrefix:
				return app.Usagef("--to-prefix %s is the old set's prefix", o.ToPrefix)
			case o.Spec.Partitions < 0 || o.Spec.Replication < 0:
				return app.Usagef("%d partitions and %d replicas: neither can be negative", o.Spec.Partitions, o.Spec.Replication)
			}
			to := cfg
			to.TopicPrefix = o.ToPrefix
			if err := to.Validate(); err != nil {
				return app.Usagef("%w", err)
			}
			bar := newProgress(out, "")
			defer bar.end()
			o.Progress = bar.stepOf
			r, err := migrate.Run(cmd.Context(), o)
			bar.end()
			if err != nil {
				return err
			}
			return printMigrated(out, r)
		},
	}
	at.Flags(cmd.Flags())
	jsonFlags(cmd, out)
	f := cmd.Flags()
	f.StringVar(&o.ToPrefix, "to-prefix", "", "prefix `TEXT` of the new topics' names")
	f.Int32Var(&o.Spec.Partitions, "partitions", 0, "partitions of the new topics; 0 is as many as the old ones have")
	f.Int16Var(&o.Spec.Replication, "replication", 0, "replicas of each partition; 0 is as many as the old ones have")
	f.StringVar(&o.Group, "group", "", "the old compactors' consumer `GROUP`; by default the topic prefix and \"skein-compactor\"")
	f.StringVar(&o.ToGroup, "to-group", "", "the new compactors' consumer `GROUP`; by default the new prefix and \"skein-compactor\"")
	f.BoolVar(&o.DryRun, "dry-run", false, "write nothing, only say what there is to do")
	return cmd
}

func printMigrated(out *output, r migrate.Report) error {
	if err := out.result(r, migratedText(r)); err != nil {
		return err
	}
	switch {
	case r.DryRun, r.Done:
		return nil
	case r.Proof != nil:
		return app.Differsf("the two topic sets differ in %s", count(len(r.Proof.Differences), "place"))
	}
	return app.Differsf("the new topic set is not complete yet")
}

func migratedText(r migrate.Report) string {
	var b strings.Builder
	if r.DryRun {
		fmt.Fprintf(&b, "to copy: %d raw events, from %d to %d partitions, and what is made of them\n", r.Left, r.FromPartitions, r.ToPartitions)
	} else {
		fmt.Fprintf(&b, "copied: %d raw events, %d run records, %d snapshots, %d dead letters, from %d to %d partitions\n",
			r.Copied["events"], r.Copied["runs"], r.Copied["snapshots"], r.Copied["deadLetters"], r.FromPartitions, r.ToPartitions)
	}
	if r.Waiting != "" {
		fmt.Fprintf(&b, "to complete it: %s\n", oneLine(r.Waiting, 300))
	}
	if p := r.Proof; p != nil {
		for _, d := range p.Differences {
			fmt.Fprintf(&b, "differs: %s\n", oneLine(d, 300))
		}
		fmt.Fprintf(&b, "compared: %d raw events of %d threads, %d run records, %d erasures, %d snapshots, %d dead letters "+
			"(%d were published again and %d erased, and are left out)\n",
			p.Events, p.Threads, p.Runs, p.Erasures, p.Snapshots, p.DeadLetters, p.Retried, p.Erased)
	}
	if r.Done {
		b.WriteString("the new topic set is complete\n")
	}
	return b.String()
}
