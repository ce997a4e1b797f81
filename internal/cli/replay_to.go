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

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/replay"
)

// replayTo are the flags of a replay to another topic.
type replayTo struct {
	kafka               app.KafkaFlags
	topic, tenant       string
	anyTenant, yes, dry bool
	headers             []string
	follow              bool
}

func (r *replayTo) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.topic, "to", "", "publish the events to `TOPIC`, with --brokers; it must exist and not belong to a topic set")
	f.StringVar(&r.tenant, "tenant", "", "the tenant's `ID`, with --to")
	f.BoolVar(&r.anyTenant, "any-tenant", false, "events of all tenants, and those that belong to none, with --to")
	f.StringSliceVar(&r.headers, "header", nil, "also copy the headers `NAMES`, separated by commas, with --to")
	f.BoolVarP(&r.follow, "follow", "f", false, "keep following new events, with --to")
	f.BoolVarP(&r.yes, "yes", "y", false, "do not ask for confirmation, with --to")
	f.BoolVar(&r.dry, "dry-run", false, "publish nothing, only say what would be done, with --to")
	r.kafka.Flags(f)
}

// onlyTo are the flags that need --to. Flags of the Kafka connection are not among them: a settings file for all commands may have them.
var onlyTo = []string{"any-tenant", "header", "follow", "yes", "dry-run"}

// errNotReplayed means that the answer to the confirmation was not yes.
var errNotReplayed = errors.New("nothing was published")

// replayedTo is the answer of skein replay --to --json.
type replayedTo struct {
	*replay.Plan
	*replay.Done
}

// run prints the plan, asks for confirmation, and publishes the selected events.
func (r *replayTo) run(ctx context.Context, out *output, in io.Reader, o replay.Options, asJSON bool) error {
	switch {
	case kafka.InTopicSet(r.topic):
		return app.Usagef("--to %s: %w", r.topic, replay.ErrTopicSet)
	case (r.tenant == "") != r.anyTenant:
		return app.Usagef("pass --tenant ID or --any-tenant with --to")
	case o.Thread != "" && r.anyTenant:
		return app.Usagef("the thread's tenant is missing: pass --tenant ID")
	case r.follow && o.Run != "":
		return app.Usagef("--follow works with a thread, or with all threads; leave RUN out")
	case r.follow && !o.Range.To.IsZero():
		return app.Usagef("-o %s and --follow: leave TO out", o.Range)
	case !r.yes && !r.dry && !isTerminal(in):
		return app.Usagef("replaying to %s: stdin is not a terminal, so there is no confirmation: pass --yes, or --dry-run", r.topic)
	}
	cfg, err := r.kafka.Config("skein-replay")
	if err != nil {
		return err
	}
	bar := newProgress(out, "")
	defer bar.end()
	o.To, o.Headers, o.Follow, o.Tenant = r.topic, r.headers, r.follow, r.tenant
	o.Progress = func(what string, done, total int) {
		bar.what = what
		bar.step(done, total)
	}
	p, err := replay.NewPlan(ctx, cfg, o)
	bar.end()
	switch {
	case errors.Is(err, replay.ErrNoRun):
		return app.NotFoundf("%w", err)
	case errors.Is(err, replay.ErrQuery):
		return app.Usagef("%w", err)
	case err != nil:
		return err
	case p.Records == 0 && !r.follow:
		return app.NotFoundf("there are no such events%s", erasedText(p))
	}
	switch {
	case asJSON:
	case r.dry:
		if err := out.text(planText(p, o)); err != nil {
			return err
		}
	default:
		out.note("%s", strings.TrimSuffix(planText(p, o), "\n"))
	}
	var done replay.Done
	if !r.dry {
		if done, err = r.publish(ctx, out, in, p, bar); errors.Is(err, errNotReplayed) {
			return err
		}
	}
	if asJSON {
		answer := replayedTo{Plan: p}
		if !r.dry {
			answer.Done = &done
		}
		if writeErr := out.json(answer); writeErr != nil {
			return writeErr
		}
	} else if !r.dry {
		if writeErr := out.text(fmt.Sprintf("published: %s to %s\n", count(done.Published, "record"), r.topic)); writeErr != nil {
			return writeErr
		}
	}
	switch {
	case err == nil:
		return nil
	case r.follow && errors.Is(err, context.Canceled): // Ctrl-C is its usual end
		return nil
	case len(done.Next) == 1 && r.follow:
		return fmt.Errorf("%w: %d were published; continue with -o %s: --follow", err, done.Published, done.Next[0])
	case len(done.Next) == 1 && len(p.Ranges) == 1:
		return fmt.Errorf("%w: %d of %d were published; continue with -o %s:%s",
			err, done.Published, p.Records, done.Next[0], p.Ranges[0].To)
	}
	return fmt.Errorf("%w: %d of %d were published; --json says where each partition continues", err, done.Published, p.Records)
}

// publish asks for confirmation, without --yes, and publishes.
func (r *replayTo) publish(ctx context.Context, out *output, in io.Reader, p *replay.Plan, bar *progress) (replay.Done, error) {
	if !r.yes {
		if err := confirm(ctx, out, in, fmt.Sprintf("Publish %s to %s?", count(p.Records, "record"), r.topic), errNotReplayed); err != nil {
			return replay.Done{}, err
		}
	}
	bar.started = time.Now()
	done, err := p.Run(ctx)
	bar.end()
	if errors.Is(err, context.Canceled) {
		err = errInterrupted
		if r.follow {
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

// planRanges is how many partitions the plan lists.
const planRanges = 12
