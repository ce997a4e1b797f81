package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/adopt"
)

func newTopicsAdopt(out *output) *cobra.Command {
	var at app.KafkaFlags
	var o adopt.Options
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Make a mirrored topic set the one that the stages use",
		Long: `Make the stages accept topics that were mirrored from another cluster, which is lost. Stop the mirror first.
The mirror must have kept the offsets of skein.events; those of the other topics may differ.

It proves the latest run records of each partition by the mirrored events, keeps the offsets of events that the
mirror lacks from being used again, and declares a new epoch. Runs whose records have events that the mirror
lacks keep what they have, and are marked rawLost. Then start the stages on this cluster.

Until the epoch is declared, compactors refuse the topics, and the command can be run again. Start no ingest
before: what it writes would be lost. If two run at once, the later one goes on. Exit code 0: the topics are
adopted, or were before; with --dry-run: they can be. 1: they cannot be adopted; the error says why.`,
		Example: `  skein topics adopt --brokers standby-0:9092 --dry-run
  skein topics adopt --brokers standby-0:9092 --topic-prefix primary.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := at.Config("skein-topics")
			if err != nil {
				return err
			}
			if o.Lost < 1 {
				return app.Usagef("--lost %d: want at least 1", o.Lost)
			}
			o.Kafka = cfg
			bar := newProgress(out, "")
			defer bar.end()
			o.Progress = bar.stepOf
			r, err := adopt.Run(cmd.Context(), o)
			bar.end()
			if err != nil {
				return err
			}
			return out.result(r, adoptedText(r))
		},
	}
	at.Flags(cmd.Flags())
	jsonFlags(cmd, out)
	f := cmd.Flags()
	f.Int64Var(&o.Lost, "lost", 100_000, "how many events the mirror may lack on each partition, at most: so many offsets are skipped")
	f.BoolVar(&o.DryRun, "dry-run", false, "write nothing, only say whether the topics can be adopted")
	return cmd
}

func adoptedText(r adopt.Report) string {
	var b strings.Builder
	for _, p := range r.Partitions {
		fmt.Fprintf(&b, "partition %d: events mirrored up to %d, processed up to %d; %s proved, %s of lost events",
			p.Partition, p.End, p.Processed, count(p.Proved, "run record"), count(p.Ahead, "run record"))
		if p.Epoch > 0 {
			fmt.Fprintf(&b, "; new events begin at %d", p.Epoch)
		}
		b.WriteString("\n")
	}
	switch {
	case r.Already:
		b.WriteString("the topics are the stages' own, or were adopted before\n")
	case r.Adopted:
		b.WriteString("adopted: start the stages on this cluster\n")
	default:
		b.WriteString("the topics can be adopted\n")
	}
	return b.String()
}
