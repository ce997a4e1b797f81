package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/refold"
	"github.com/skeinhq/skein/pkg/verify"
)

func newRefold(out *output) *cobra.Command {
	var at app.KafkaFlags
	var tenant, group string
	var between rangeFlag
	var all, asJSON, apply, yes bool
	cmd := &cobra.Command{
		Use:     "refold [THREAD]",
		GroupID: groupOperate,
		Short:   "Find and rewrite records that this version folds differently",
		Long: `Fold the raw events of ended runs again, by the rules of this version, and report which records would come out
differently: the members that change, and where in each the first change is. If a run changes, the runs that
depend on it are folded from what they would then start from. Without --apply nothing is written and no consumer
group is touched. The command reads skein.runs and skein.events from Kafka directly, for all tenants or for --tenant.

Run it before and after an upgrade. Open runs, and runs whose raw events are gone, are only counted.
The exit code is 4 if a record would change.

With --apply it reports first, and asks for confirmation. Then it requests that the compactors, which alone write
records, rewrite each thread with such runs as a whole; waits until they have decided; and compares once more. The
compactors have to be of this version. A thread with an open run stays unchanged: run the command again later.
The exit code is 4 if a record would still change.`,
		Example: `  skein refold --brokers kafka-0:9092 --tenant acme my-thread
  skein refold --brokers kafka-0:9092 -o 3:1024:3:4096
  skein refold --brokers kafka-0:9092 --tenant acme my-thread --apply
  skein refold --brokers kafka-0:9092 --all --json | jq -r 'select(.outcome == "changes") | .threadId' | uniq`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := refold.Query{Tenant: tenant}
			ways := len(args)
			if all {
				ways++
			}
			if between.said() {
				ways++
			}
			if ways != 1 {
				return app.Usagef("select runs: THREAD, -o FROM:TO, or --all")
			}
			if len(args) == 1 {
				if tenant == "" {
					return app.Usagef("the thread's tenant is missing: pass --tenant ID")
				}
				q.Thread = args[0]
			} else if !all {
				if err := eventsBetween(&q, between.Range); err != nil {
					return err
				}
			}
			cfg, err := at.Config("skein-refold")
			if err != nil {
				return err
			}
			if !apply && (yes || group != "") {
				return app.Usagef("--yes and --group need --apply")
			}
			r, err := report(cmd.Context(), out, cfg, q, asJSON, apply)
			if err != nil || !apply {
				return err
			}
			if len(r.threads) == 0 {
				out.note("there is nothing to write")
				return nil
			}
			if !yes {
				in := cmd.InOrStdin()
				if !isTerminal(in) {
					return app.Usagef("rewriting %s: stdin is not a terminal, so there is no confirmation: pass --yes", count(len(r.threads), "thread"))
				}
				question := fmt.Sprintf("Have the compactors rewrite %s?", count(len(r.threads), "thread"))
				if err := confirm(cmd.Context(), out, in, question, errNotApplied); err != nil {
					return err
				}
			}
			if group == "" {
				group = cfg.CompactorGroup()
			}
			return applyRefold(cmd.Context(), out, cfg, group, q, r, asJSON)
		},
	}
	at.Flags(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON Lines")
	f := cmd.Flags()
	f.StringVar(&tenant, "tenant", "", "the tenant's `ID`; by default all tenants; required with THREAD")
	between.flag(f)
	f.BoolVar(&all, "all", false, "every run of every thread")
	f.BoolVar(&apply, "apply", false, "have the compactors rewrite the threads in which a record would change")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation, with --apply")
	f.StringVar(&group, "group", "", "the compactors' consumer `GROUP`, with --apply; by default the topic prefix and \"skein-compactor\"")
	return cmd
}

// eventsBetween has the query select runs with events in a stretch of one partition.
func eventsBetween(q *refold.Query, r record.Range) error {
	first, last := r.From.Position, r.To.Position
	if first == nil || last == nil && !r.To.IsZero() {
		return app.Usagef("-o %s: want a position, and another one or nothing behind it", r)
	}
	q.Partition, q.Span = first.Partition, &kafka.Span{Start: first.Offset, End: math.MaxInt64}
	if last != nil {
		q.Span.End = last.Offset
	}
	return nil
}

// errNotApplied says that the confirmation was not yes.
var errNotApplied = errors.New("nothing was requested")

// report folds the selected runs again and prints the result. If records are to be rewritten, a change is not an
// error yet.
func report(ctx context.Context, out *output, cfg kafka.Config, q refold.Query, asJSON, apply bool) (*refolding, error) {
	bar := newProgress(out, "refold")
	defer bar.end()
	q.Progress = bar.step
	r := &refolding{out: out, bar: bar, asJSON: asJSON, apply: apply, counts: map[verify.Outcome]int{}, ofThread: map[refold.Request]ofThread{}}
	if err := refold.Refold(ctx, cfg, q, r.tell); err != nil {
		return nil, err
	}
	bar.end()
	return r, r.end()
}

// ofThread is how many runs of a thread there are, how many change, of how many the raw events are gone, and why that cannot be
// rewritten.
type ofThread struct {
	runs, changes, gone int
	left                string
}

// refolding prints runs as they come. The text form only counts the runs that stay unchanged.
type refolding struct {
	out           *output
	bar           *progress
	asJSON, apply bool
	counts        map[verify.Outcome]int
	// threads are those in which a run changes, in order, without a position.
	threads  []refold.Request
	ofThread map[refold.Request]ofThread
}

func (r *refolding) tell(run verify.Result) error {
	r.counts[run.Outcome]++
	thread := refold.Request{Tenant: run.Tenant, ThreadID: run.ThreadID}
	of := r.ofThread[thread]
	of.runs++
	switch run.Outcome {
	case verify.Changes:
		if of.changes++; of.changes == 1 {
			r.threads = append(r.threads, thread)
		}
	case verify.Gone:
		of.gone++
	}
	r.ofThread[thread] = of
	switch {
	case r.asJSON && r.apply: // receipts follow
		return nil
	case r.asJSON:
		return r.out.json(run)
	case run.Outcome != verify.Changes:
		return nil
	}
	r.bar.end()
	names := make([]string, len(run.Differences))
	for i, d := range run.Differences {
		names[i] = oneLine(d.Member+string(d.At), 80)
	}
	return r.out.text(fmt.Sprintf("tenant %s, thread %s, run %s, folded by version %d: changes in %s\n", oneLine(run.Tenant, 40),
		oneLine(run.ThreadID, 80), oneLine(run.RunID, 80), run.FoldVersion, strings.Join(names, ", ")))
}

func (r *refolding) end() error {
	changes, runs := r.counts[verify.Changes], 0
	for _, n := range r.counts {
		runs += n
	}
	if runs == 0 {
		return app.NotFoundf("there are no such runs")
	}
	if !r.asJSON {
		if err := r.out.text(fmt.Sprintf("%d runs by version %d of the rules: %d as they are, %d would change; left: %d whose raw events are gone, %d open\n",
			runs, compact.Version, r.counts[verify.Same], changes, r.counts[verify.Gone], r.counts[verify.Open])); err != nil {
			return err
		}
	}
	if changes > 0 && !r.apply {
		return app.Differsf("%d records would change", changes)
	}
	return nil
}

// refoldReceipt says what became of a request for one thread.
type refoldReceipt struct {
	Tenant   string `json:"tenant"`
	ThreadID string `json:"threadId"`
	// Position is the request's in skein.events.
	Position record.Position `json:"position"`
	// Changed is how many records came out otherwise before, Left how many of them still do, or cannot be compared any more.
	Changed int `json:"changed"`
	Left    int `json:"left"`
	// Why says what has kept them, or that the thread does not exist any more.
	Why string `json:"why,omitempty"`
}

// applyRefold asks the compactors, waits until they have decided, and compares once more.
func applyRefold(ctx context.Context, out *output, cfg kafka.Config, group string, q refold.Query, before *refolding, asJSON bool) error {
	requests := slices.Clone(before.threads)
	if err := refold.Send(ctx, cfg, requests); err != nil {
		return err
	}
	bar := newProgress(out, "threads")
	defer bar.end()
	if err := refold.Await(ctx, cfg, group, requests, refold.NobodyFor, bar.step); err != nil {
		return fmt.Errorf("%w; the request was written all the same: the same command without --apply shows its progress", err)
	}
	bar.end()
	after := &refolding{out: out, asJSON: true, apply: true, counts: map[verify.Outcome]int{}, ofThread: map[refold.Request]ofThread{}}
	bar = newProgress(out, "compare")
	defer bar.end()
	q.Progress = bar.step
	q.Unchanged = func(tenant, thread, why string) {
		key := refold.Request{Tenant: tenant, ThreadID: thread}
		of := after.ofThread[key]
		of.left = why
		after.ofThread[key] = of
	}
	if err := refold.Refold(ctx, cfg, q, after.tell); err != nil {
		return err
	}
	bar.end()
	left := 0
	for i, asked := range requests {
		thread := before.threads[i]
		r := receiptOf(asked, before.ofThread[thread], after.ofThread[thread])
		left += r.Left
		if err := r.print(out, asJSON); err != nil {
			return err
		}
	}
	if left > 0 {
		return app.Differsf("%d records would still change", left)
	}
	return nil
}

// receiptOf says what became of a request by what the thread was before and is after it.
func receiptOf(asked refold.Request, before, after ofThread) refoldReceipt {
	r := refoldReceipt{Tenant: asked.Tenant, ThreadID: asked.ThreadID, Position: asked.Position, Changed: before.changes, Left: after.changes}
	expired := after.gone - before.gone
	switch {
	case after.runs == 0:
		r.Why = "the thread does not exist any more"
	case expired > 0: // perhaps before the compactors came to it
		r.Left = min(r.Changed, r.Left+expired)
		r.Why = fmt.Sprintf("raw events of %s are gone by now, so it is not known whether it was rewritten", count(expired, "run"))
	case r.Left > 0 && after.left != "":
		r.Why = after.left
	case r.Left > 0:
		r.Why = "the compactor's log has the reason: a run was open or just abandoned (try again), or the thread is too large to be folded again at once, or its events are too far apart"
	}
	return r
}

func (r refoldReceipt) print(out *output, asJSON bool) error {
	if asJSON {
		return out.json(r)
	}
	text := fmt.Sprintf("tenant %s, thread %s: requested at %s, ", oneLine(r.Tenant, 40), oneLine(r.ThreadID, 80), r.Position)
	switch {
	case r.Left > 0:
		text += fmt.Sprintf("%d of %d left: %s", r.Left, r.Changed, r.Why)
	case r.Why != "":
		text += r.Why
	default:
		text += "rewritten"
	}
	return out.text(text + "\n")
}
