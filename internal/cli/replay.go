package cli

import (
	"bytes"
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/steps"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/replay"
)

// replayOptions are the flags of skein replay.
type replayOptions struct {
	replay.Options
	at                  *server
	kafka               app.KafkaFlags // with --to
	branch, pace        string
	types               []string
	condition           *steps.Condition // of --until; nil if there is none
	all, sse, step      bool
	anyTenant, yes, dry bool // with --to
}

func newReplay(out *output) *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use:     "replay THREAD [RUN]",
		GroupID: groupRead,
		Short:   "Print raw events byte for byte, or publish them to another topic",
		Long: `Print the raw events of a run, byte for byte and in order, one per line: those that its record was folded
from, without repeats. Without RUN, print the events of all runs of the thread. Of an open run, print the
events up to its latest record.

Live readers and consumer groups are not affected. If Kafka has deleted events by age, that is an error,
which says where the remaining events begin.

With --to TOPIC the events are published to another topic, such as one of a test system: as they lie in
skein.events, including repeats and inputs. Leave THREAD out for a whole tenant. The command reads Kafka
directly, outside of any group. First it says what it would publish, and asks. It copies the headers that
describe the event, its run or its producer, and those of --header; skein-replayed-from is the original's
position. Events of erased threads are left out. A topic of a topic set is refused.

With --until it stops at the first event of RUN after which the expression is true, and prints its position.
The expression is CEL (https://cel.dev) over messages and state after an event, and the event itself. If it
uses a member that does not exist, it is not true there; state.?cart.?total.orValue(0) > 100 gives a default.
Numbers are those of JSON, doubles.

With --step you step through RUN (by default the thread's tip) in the terminal: messages and state after each
event, with what it changed. It begins at the event of --range or --until; ? shows the keys.

Exit code 3: there is no such thread or run, there are no events to write --to a topic, or --until was true
at none.`,
		Example: `  skein replay my-thread my-run | sha256sum   # is raw.sha256 of the run; skein verify compares more
  skein replay my-thread my-run --pace 10 --sse
  skein replay my-thread --range @2026-09-17T12:00:00Z:end --all --json
  skein replay my-thread my-run --until 'event.type == "TOOL_CALL_START" && state.cart.total > 100'
  skein replay my-thread my-run --step
  skein replay my-thread --to test-events --brokers kafka-0:9092 --tenant acme --dry-run
  skein replay --to test-events --brokers kafka-0:9092 --tenant acme --range @2026-09-17T12:00:00Z --pace 10 --yes`,
		Args: usageArgs(cobra.MaximumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Pace, err = replay.ParsePace(o.pace); err != nil {
				return app.Usagef("--pace: %w", err)
			}
			if slices.Contains(o.types, "") {
				return app.Usagef("--type: want types of event, such as TOOL_CALL_START")
			}
			if o.To != "" {
				return o.publish(cmd, out, args)
			}
			if err := o.check(cmd, out, args); err != nil {
				return err
			}
			if o.step {
				return o.stepThrough(cmd, out, args)
			}
			return o.print(cmd.Context(), out, args)
		},
	}
	o.at = serverFlags(cmd, out)
	f := cmd.Flags()
	f.StringVar(&o.branch, "branch", "", "only the runs of `BRANCH`, which is the id of its first run")
	rangeFlag(f, &o.Range)
	f.StringVar(&o.pace, "pace", "max", "`PACE`: max, recorded (with the original pauses), or a speed factor such as 10")
	f.Func("until", "stop at the first event of RUN after which `EXPR` is true, a CEL expression over messages, state and event",
		func(text string) (err error) {
			o.condition, err = steps.NewCondition(text)
			return err
		})
	f.BoolVar(&o.step, "step", false, "step through the run in the terminal; --pace is its playback speed, by default recorded")
	f.StringSliceVar(&o.types, "type", nil, "only events of these `TYPES`, separated by commas, such as TOOL_CALL_START")
	f.BoolVar(&o.all, "all", false, "also inputs and records that were not folded; --json and --sse tell them apart")
	f.BoolVar(&o.sse, "sse", false, "print server-sent events, each with its position as id")
	formFlags(cmd, out, "`FORM` of the output: text (the events as they are) or jsonl (with position, time, run and outcome; with --to, one document)",
		formJSONL, formText, formJSONL)
	o.toFlags(f)
	return cmd
}

// check checks flags and arguments of a replay without --to.
func (o *replayOptions) check(cmd *cobra.Command, out *output, args []string) error {
	if len(args) == 0 {
		return app.Usagef("name THREAD, or pass --to TOPIC: usage: %s", cmd.UseLine())
	}
	if o.Follow {
		return app.Usagef("--follow needs --to TOPIC; skein tail --events follows a thread")
	}
	for _, name := range onlyTo {
		if cmd.Flags().Changed(name) {
			return app.Usagef("--%s needs --to TOPIC", name)
		}
	}
	switch {
	case o.sse && out.asJSON:
		return app.Usagef("pass --sse or -o jsonl, not both")
	case o.step && (o.sse || out.asJSON || o.all || o.branch != "" || len(o.types) > 0):
		return app.Usagef("--step shows the whole run; leave --sse, -o jsonl, --all, --branch and --type out")
	case !o.step && len(args) == 1 && o.condition != nil:
		return app.Usagef("--until needs one run: name RUN")
	case !o.step && len(args) == 2 && o.branch != "":
		return app.Usagef("--branch is for a whole thread; leave RUN out")
	}
	return nil
}

// print prints events of a thread or run.
func (o *replayOptions) print(ctx context.Context, out *output, args []string) error {
	path, run := runPath(args)
	form := client.TypeNDJSON
	switch {
	case o.sse:
		form = client.TypeSSE
	case out.asJSON:
		form = client.TypeSequenced
	}
	q := url.Values{}
	set(q, "branch", o.branch)
	set(q, "from", o.Range.From.String())
	set(q, "to", o.Range.To.String())
	set(q, "pace", o.pace)
	set(q, "types", strings.Join(o.types, ","))
	if o.all {
		q.Set("all", "true")
	}
	return o.at.connect(func(c *client.Client) error {
		stopped := ""
		if o.condition != nil {
			end, text, err := replayUntil(ctx, out, c, path, o.condition, o.Range)
			if err != nil {
				return out.foundStep(err, args[0], run)
			}
			stopped = text
			q.Set("to", end.String())
		}
		bar := newProgress(out, "replayed lines")
		err := c.Copy(ctx, path+"/events", q, form, &countedLines{output: out, bar: bar})
		bar.end()
		if err == nil && stopped != "" {
			out.note("%s", stopped)
		}
		if o.branch != "" { // the server reports which of thread and branch does not exist
			return err
		}
		return out.found(err, args[0], run)
	})
}

// stepThrough opens the stepper at the event that the flags select.
func (o *replayOptions) stepThrough(cmd *cobra.Command, out *output, args []string) error {
	in := cmd.InOrStdin()
	if !isTerminal(in) || !isTerminal(out.stdout) || out.dumb {
		return app.Usagef("--step needs a terminal to draw on; skein state THREAD RUN --at STEP prints one step")
	}
	if !cmd.Flags().Changed("pace") {
		o.Pace = 1
	}
	path, run := runPath(args)
	return o.at.connect(func(c *client.Client) error {
		source, from := steps.Of(c, path), 0
		if o.condition != nil || o.Range != (record.Range{}) {
			m, err := findStep(cmd.Context(), out, source, o.condition, o.Range)
			if err != nil {
				return out.foundStep(err, args[0], run)
			}
			from = m.N
		}
		return out.foundStep(stepThrough(cmd.Context(), out, in, source, from, o.Pace), args[0], run)
	})
}

// rangeFlag adds the flag that selects a range of skein.events. The zero range selects all events.
func rangeFlag(f *pflag.FlagSet, r *record.Range) {
	f.Func("range", "only events from FROM up to but excluding TO, as `FROM:TO`; each is a position (3:1024), "+
		"a time (@2026-09-17T12:00:00Z), start or end (fixed when the command starts)",
		func(text string) (err error) {
			*r, err = record.ParseRange(text)
			return err
		})
}

// countedLines writes to stdout and reports the number of lines to a progress.
type countedLines struct {
	*output
	bar   *progress
	lines int
}

// Write implements io.Writer.
func (c *countedLines) Write(b []byte) (int, error) {
	n, err := c.stdout.Write(b)
	c.lines += bytes.Count(b[:n], []byte{'\n'})
	if !isTerminal(c.stdout) { // on a terminal the lines themselves show the progress
		c.bar.step(c.lines, 0)
	}
	return n, err
}
