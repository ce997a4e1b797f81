package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/replay"
)

// toFlags adds the flags of a replay to another topic.
func (o *replayOptions) toFlags(f *pflag.FlagSet) {
	f.StringVar(&o.To, "to", "", "publish the events to `TOPIC`, with --brokers; it must exist and not belong to a topic set")
	f.StringVar(&o.Tenant, "tenant", "", "the tenant's `ID`, with --to")
	f.BoolVar(&o.anyTenant, "any-tenant", false, "events of all tenants, and those that belong to none, with --to")
	f.StringSliceVar(&o.Headers, "header", nil, "also copy the headers `NAMES`, separated by commas, with --to")
	f.BoolVarP(&o.Follow, "follow", "f", false, "keep following new events, with --to")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation, with --to")
	f.BoolVar(&o.dry, "dry-run", false, "publish nothing, only say what would be done, with --to")
	o.kafka.Flags(f)
}

// onlyTo lists the flags that need --to. It omits the Kafka flags, which a settings file for all commands may set.
var onlyTo = []string{"any-tenant", "header", "follow", "yes", "dry-run"}

// errNotReplayed means that the user did not confirm the replay.
var errNotReplayed = errors.New("nothing was published")

// replayedTo is the answer of skein replay --to --json.
type replayedTo struct {
	*replay.Plan
	*replay.Done
}

// publish publishes the selected events to another topic.
func (o *replayOptions) publish(cmd *cobra.Command, out *output, args []string) error {
	for _, name := range []string{"branch", "all", "sse", "until", "step"} {
		if cmd.Flags().Changed(name) {
			return app.Usagef("--%s cannot be combined with --to, which reads all events from Kafka directly", name)
		}
	}
	for _, t := range o.types {
		o.Types = append(o.Types, agui.Type(t))
	}
	if len(args) > 0 {
		o.Thread = args[0]
	}
	if len(args) > 1 {
		o.Run = args[1]
	}
	in := cmd.InOrStdin()
	switch {
	case kafka.InTopicSet(o.To):
		return app.Usagef("--to %s: %w", o.To, replay.ErrTopicSet)
	case (o.Tenant == "") != o.anyTenant:
		return app.Usagef("pass --tenant ID or --any-tenant with --to")
	case o.Thread != "" && o.anyTenant:
		return app.Usagef("the thread's tenant is missing: pass --tenant ID")
	case o.Follow && o.Run != "":
		return app.Usagef("--follow works with a thread, or with all threads; leave RUN out")
	case o.Follow && !o.Range.To.IsZero():
		return app.Usagef("--range %s and --follow: leave TO out", o.Range)
	case !o.yes && !o.dry && !isTerminal(in):
		return app.Usagef("replaying to %s: stdin is not a terminal, so there is no confirmation: pass --yes, or --dry-run", o.To)
	}
	return o.planAndPublish(cmd.Context(), out, in)
}

// planAndPublish prints the plan, asks for confirmation, and publishes.
func (o *replayOptions) planAndPublish(ctx context.Context, out *output, in io.Reader) error {
	cfg, err := o.kafka.Config("skein-replay")
	if err != nil {
		return err
	}
	bar := newProgress(out, "")
	defer bar.end()
	o.Progress = bar.stepOf
	p, err := replay.NewPlan(ctx, cfg, o.Options)
	bar.end()
	switch {
	case errors.Is(err, replay.ErrNoRun):
		return app.NotFoundf("%w", err)
	case errors.Is(err, replay.ErrQuery):
		return app.Usagef("%w", err)
	case err != nil:
		return err
	case p.Records == 0 && !o.Follow:
		return app.NotFoundf("there are no such events%s", erasedText(p))
	}
	switch {
	case out.asJSON:
	case o.dry:
		if err := out.text(planText(p, o.Options)); err != nil {
			return err
		}
	default:
		out.note("%s", strings.TrimSuffix(planText(p, o.Options), "\n"))
	}
	var done replay.Done
	if !o.dry {
		if done, err = o.publishPlan(ctx, out, in, p, bar); errors.Is(err, errNotReplayed) {
			return err
		}
	}
	if out.asJSON {
		answer := replayedTo{Plan: p}
		if !o.dry {
			answer.Done = &done
		}
		if writeErr := out.json(answer); writeErr != nil {
			return writeErr
		}
	} else if !o.dry {
		if writeErr := out.text(fmt.Sprintf("published: %s to %s\n", count(done.Published, "record"), o.To)); writeErr != nil {
			return writeErr
		}
	}
	switch {
	case err == nil:
		return nil
	case o.Follow && errors.Is(err, context.Canceled): // Ctrl-C is the usual end of --follow
		return nil
	case len(done.Next) == 1 && o.Follow:
		return fmt.Errorf("%w: %d were published; continue with --range %s: --follow", err, done.Published, done.Next[0])
	case len(done.Next) == 1 && len(p.Ranges) == 1:
		return fmt.Errorf("%w: %d of %d were published; continue with --range %s:%s",
			err, done.Published, p.Records, done.Next[0], p.Ranges[0].To)
	}
	return fmt.Errorf("%w: %d of %d were published; --json says where each partition continues", err, done.Published, p.Records)
}

// publishPlan asks for confirmation unless --yes is set, and publishes.
func (o *replayOptions) publishPlan(ctx context.Context, out *output, in io.Reader, p *replay.Plan, bar *progress) (replay.Done, error) {
	if !o.yes {
		if err := confirm(ctx, out, in, fmt.Sprintf("Publish %s to %s?", count(p.Records, "record"), o.To), errNotReplayed); err != nil {
			return replay.Done{}, err
		}
	}
	bar.started = time.Now()
	done, err := p.Run(ctx)
	bar.end()
	if errors.Is(err, context.Canceled) {
		err = errInterrupted
		if o.Follow {
			err = context.Canceled
		}
	}
	return done, err
}

func erasedText(p *replay.Plan) string {
	if p.Erased == 0 {
		return ""
	}
	return fmt.Sprintf("; %s left out, as their threads were erased", count(p.Erased, "event"))
}

// planText describes a replay for people.
func planText(p *replay.Plan, o replay.Options) string {
	var b strings.Builder
	fmt.Fprintf(&b, "to publish to %s (%s): %s, %s of keys and values%s\n", p.Topic, count(int(p.Partitions), "partition"),
		count(p.Records, "record"), count(p.Bytes, "byte"), erasedText(p))
	for i, r := range p.Ranges {
		if i == planRanges {
			fmt.Fprintf(&b, "  … and %d partitions more\n", len(p.Ranges)-i)
			break
		}
		fmt.Fprintf(&b, "  from %s to before %s: %d\n", r.From, r.To, r.Records)
	}
	if p.FirstAt != nil {
		fmt.Fprintf(&b, "  of %s to %s; each gets the time at which it is published\n",
			p.FirstAt.UTC().Format(time.RFC3339), p.LastAt.UTC().Format(time.RFC3339))
	}
	kinds := maps.Clone(p.Types)
	for name, n := range map[string]int{"inputs": p.Inputs, "malformed": p.Malformed} {
		if n > 0 {
			kinds[name] = n
		}
	}
	for _, line := range []struct {
		what  string
		names map[string]int
	}{{"types", kinds}, {"headers", p.Headers}, {"headers left out", p.LeftOut}} {
		if len(line.names) > 0 {
			fmt.Fprintf(&b, "  %s: %s\n", line.what, tally(line.names))
		}
	}
	if p.TooLarge > 0 {
		verb := "are"
		if p.TooLarge == 1 {
			verb = "is"
		}
		fmt.Fprintf(&b, "  %s %s larger than the topic takes, and end the replay: raise its max.message.bytes first\n",
			count(p.TooLarge, "record"), verb)
	}
	if o.Pace != 0 && p.FirstAt != nil {
		fmt.Fprintf(&b, "  it takes %v\n", o.Pace.Pause(p.LastAt.Sub(*p.FirstAt)).Round(time.Second))
	}
	if o.Follow {
		b.WriteString("  and then what comes, until Ctrl-C\n")
	}
	return b.String()
}

// planRanges limits how many partitions the plan lists.
const planRanges = 12
