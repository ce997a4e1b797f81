package cli

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/verify"
	"github.com/skeinhq/skein/pkg/verify/scan"
)

func newRefold(out *output) *cobra.Command {
	var at app.KafkaFlags
	var tenant string
	var between record.Range
	var all bool
	cmd := &cobra.Command{
		Use:     "refold [THREAD]",
		GroupID: groupOperate,
		Short:   "Find records that this version folds differently",
		Long: `Fold the raw events of ended runs again, by the rules of this version, and report which records would come out
differently: the members that change, and where in each the first change is. If a run changes, the runs that
depend on it are folded from what they would then start from. Nothing is written and no consumer group is touched:
the command reads skein.runs and skein.events from Kafka directly, for all tenants or for --tenant.

Run it before an upgrade, with the new version. Open runs, and runs whose raw events are gone, are only counted.
The exit code is 4 if a record would change.`,
		Example: `  skein refold --brokers kafka-0:9092 --tenant acme my-thread
  skein refold --brokers kafka-0:9092 --range 3:1024:3:4096
  skein refold --brokers kafka-0:9092 --all --json | jq -r 'select(.outcome == "changes") | .threadId' | uniq`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := scan.Query{Tenant: tenant}
			ways := len(args)
			if all {
				ways++
			}
			if between != (record.Range{}) {
				ways++
			}
			if ways != 1 {
				return app.Usagef("select runs: THREAD, --range FROM:TO, or --all")
			}
			if len(args) == 1 {
				if tenant == "" {
					return app.Usagef("the thread's tenant is missing: pass --tenant ID")
				}
				q.Thread = args[0]
			} else if !all {
				if err := eventsBetween(&q, between); err != nil {
					return err
				}
			}
			cfg, err := at.Config("skein-refold")
			if err != nil {
				return err
			}
			return reportChanges(cmd.Context(), out, cfg, q)
		},
	}
	at.Flags(cmd.Flags())
	jsonLinesFlags(cmd, out)
	f := cmd.Flags()
	f.StringVar(&tenant, "tenant", "", "the tenant's `ID`; by default all tenants; required with THREAD")
	rangeFlag(f, &between)
	f.BoolVar(&all, "all", false, "every run of every thread")
	return cmd
}

// eventsBetween limits the query to runs with events in a range of one partition.
func eventsBetween(q *scan.Query, r record.Range) error {
	first, last := r.From.Position, r.To.Position
	if first == nil || last == nil && !r.To.IsZero() {
		return app.Usagef("--range %s: want a position, and another one or nothing after it", r)
	}
	q.Partition, q.Span = first.Partition, &kafka.Span{Start: first.Offset, End: math.MaxInt64}
	if last != nil {
		q.Span.End = last.Offset
	}
	return nil
}

// reportChanges folds the selected runs again. It prints runs as they come (the text form prints only runs that change), and
// at the end the totals.
func reportChanges(ctx context.Context, out *output, cfg kafka.Config, q scan.Query) error {
	bar := newProgress(out, "refold")
	defer bar.end()
	q.Progress = bar.step
	runs, counts := 0, map[verify.Outcome]int{}
	err := scan.Changes(ctx, cfg, q, func(run verify.Result) error {
		runs++
		counts[run.Outcome]++
		switch {
		case out.asJSON:
			return out.json(run)
		case run.Outcome != verify.Changes:
			return nil
		}
		bar.end()
		names := make([]string, len(run.Differences))
		for i, d := range run.Differences {
			names[i] = oneLine(d.Member+string(d.At), 80)
		}
		return out.text(fmt.Sprintf("tenant %s, thread %s, run %s, folded by version %d: changes in %s\n", oneLine(run.Tenant, 40),
			oneLine(run.ThreadID, 80), oneLine(run.RunID, 80), run.FoldVersion, strings.Join(names, ", ")))
	})
	switch {
	case err != nil:
		return err
	case runs == 0:
		return app.NotFoundf("there are no such runs")
	}
	bar.end()
	changes := counts[verify.Changes]
	if !out.asJSON {
		const format = "%d runs by version %d of the rules: %d as they are, %d would change; left: %d whose raw events are gone, %d open\n"
		text := fmt.Sprintf(format, runs, compact.Version, counts[verify.Same], changes, counts[verify.Gone], counts[verify.Open])
		if err := out.text(text); err != nil {
			return err
		}
	}
	if changes > 0 {
		return app.Differsf("%d records would change", changes)
	}
	return nil
}
