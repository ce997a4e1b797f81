package cli

import (
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/shadow"
)

func newRefold(out *output) *cobra.Command {
	var at app.KafkaFlags
	var tenant, from, to string
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:     "refold [THREAD]",
		GroupID: groupOperate,
		Short:   "Say which records this version would make otherwise",
		Long: `Fold the raw events of ended runs again, by the rules of this version, and say which records would come out
otherwise: the members that change, and where in each the first change is. Where a run changes, those that
hang from it are held to what they would then start from. Nothing is written and no consumer group is
touched; it reads skein.runs and skein.events from Kafka itself, for all tenants unless --tenant says one.

Do so before and after an upgrade. Runs that are open, and those whose raw events are gone, are only counted.
The exit code is 4 where a record would change.`,
		Example: `  skein refold --brokers kafka-0:9092 --tenant acme my-thread
  skein refold --brokers kafka-0:9092 --from 3:1024 --to 3:4096
  skein refold --brokers kafka-0:9092 --all --json | jq -r 'select(.outcome == "changes") | .threadId' | uniq`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := shadow.Query{Tenant: tenant}
			ways := len(args)
			if all {
				ways++
			}
			if from != "" || to != "" {
				ways++
			}
			if ways != 1 {
				return app.Usagef("say which runs: THREAD, --from POSITION with or without --to POSITION, or --all")
			}
			if len(args) == 1 {
				if tenant == "" {
					return app.Usagef("say whose thread: --tenant ID")
				}
				q.Thread = args[0]
			} else if !all {
				if err := stretch(&q, from, to); err != nil {
					return err
				}
			}
			cfg, err := at.Config("skein-refold")
			if err != nil {
				return err
			}
			bar := newProgress(out, "refold")
			defer bar.end()
			q.Progress = bar.step
			r := refolding{out: out, bar: bar, asJSON: asJSON, counts: map[shadow.Outcome]int{}}
			if err := shadow.Refold(cmd.Context(), cfg, q, r.tell); err != nil {
				return err
			}
			bar.end()
			return r.end()
		},
	}
	at.Flags(cmd.Flags())
	jsonFlag(cmd, &asJSON)
	f := cmd.Flags()
	f.StringVar(&tenant, "tenant", "", "the tenant's `ID`; everybody by default, but for THREAD")
	f.StringVar(&from, "from", "", "runs with events at `POSITION` or behind it, in its partition")
	f.StringVar(&to, "to", "", "and before `POSITION`, of the same partition; its end by default")
	f.BoolVar(&all, "all", false, "every run of every thread")
	return cmd
}

// stretch reads --from and --to into the query.
func stretch(q *shadow.Query, from, to string) error {
	if from == "" {
		return app.Usagef("--to goes with --from POSITION")
	}
	first, err := record.ParsePosition(from)
	if err != nil {
		return app.Usagef("--from: %w", err)
	}
	last := record.Position{Partition: first.Partition, Offset: math.MaxInt64}
	if to != "" {
		if last, err = record.ParsePosition(to); err != nil {
			return app.Usagef("--to: %w", err)
		}
	}
	if last.Partition != first.Partition || last.Offset <= first.Offset {
		return app.Usagef("--from %s --to %s: want two positions of one partition, the second one behind the first", from, to)
	}
	q.Partition, q.Span = first.Partition, &kafka.Span{Start: first.Offset, End: last.Offset}
	return nil
}

// refolding prints runs as they come. Of those that stay as they are, people are only told the number.
type refolding struct {
	out    *output
	bar    *progress
	asJSON bool
	counts map[shadow.Outcome]int
}

func (r *refolding) tell(run shadow.Run) error {
	r.counts[run.Outcome]++
	switch {
	case r.asJSON:
		return r.out.json(run)
	case run.Outcome != shadow.Changes:
		return nil
	}
	r.bar.end()
	names := make([]string, len(run.Differences))
	for i, d := range run.Differences {
		names[i] = oneLine(d.Member+d.At, 80)
	}
	return r.out.text(fmt.Sprintf("tenant %s, thread %s, run %s, folded by version %d: changes in %s\n", oneLine(run.Tenant, 40),
		oneLine(run.ThreadID, 80), oneLine(run.RunID, 80), run.FoldVersion, strings.Join(names, ", ")))
}

func (r *refolding) end() error {
	changes, runs := r.counts[shadow.Changes], 0
	for _, n := range r.counts {
		runs += n
	}
	if runs == 0 {
		return app.NotFoundf("there are no such runs")
	}
	if !r.asJSON {
		if err := r.out.text(fmt.Sprintf("%d runs by version %d of the rules: %d as they are, %d would change; left: %d whose raw events are gone, %d open\n",
			runs, compact.Version, r.counts[shadow.Same], changes, r.counts[shadow.Gone], r.counts[shadow.Open])); err != nil {
			return err
		}
	}
	if changes > 0 {
		return app.Differsf("%d records would change", changes)
	}
	return nil
}
