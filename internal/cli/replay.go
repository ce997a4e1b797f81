package cli

import (
	"bytes"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/client"
	"github.com/skeinhq/skein/internal/steps"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/replay"
)

func newReplay(out *output, environ []string) *cobra.Command {
	at := server{environ: environ}
	var branch, pace, until string
	var between rangeFlag
	var types []string
	var to replayTo
	var all, sse, asJSON, step bool
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
event, with what it changed. It begins at the event of -o or --until; ? shows the keys.

Exit code 3: there are no such events, or --until was true at none.`,
		Example: `  skein replay my-thread my-run | sha256sum   # is raw.sha256 of the run; skein verify compares more
  skein replay my-thread my-run --pace 10 --sse
  skein replay my-thread -o @2026-09-17T12:00:00Z:end --all --json
  skein replay my-thread my-run --until 'event.type == "TOOL_CALL_START" && state.cart.total > 100'
  skein replay my-thread my-run --step
  skein replay my-thread --to test-events --brokers kafka-0:9092 --tenant acme --dry-run
  skein replay --to test-events --brokers kafka-0:9092 --tenant acme -o @2026-09-17T12:00:00Z --pace 10 --yes`,
		Args: usageArgs(cobra.MaximumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			speed, err := replay.ParsePace(pace)
			if err != nil {
				return app.Usagef("--pace: %w", err)
			}
			var condition *steps.Condition
			if until != "" {
				if condition, err = steps.NewCondition(until); err != nil {
					return app.Usagef("--until: %w", err)
				}
			}
			if slices.Contains(types, "") {
				return app.Usagef("--type: want types of event, such as TOOL_CALL_START")
			}
			if to.topic != "" {
				for _, name := range []string{"branch", "all", "sse", "until", "step"} {
					if cmd.Flags().Changed(name) {
						return app.Usagef("--%s cannot be combined with --to, which reads all events from Kafka directly", name)
					}
				}
				o := replay.Options{Pace: speed, Query: replay.Query{Range: between.Range}}
				for _, t := range types {
					o.Types = append(o.Types, agui.Type(t))
				}
				if len(args) > 0 {
					o.Thread = args[0]
				}
				if len(args) > 1 {
					o.Run = args[1]
				}
				return to.run(cmd.Context(), out, cmd.InOrStdin(), o, asJSON)
			}
			if len(args) == 0 {
				return app.Usagef("name THREAD, or pass --to TOPIC: usage: %s", cmd.UseLine())
			}
			for _, name := range onlyTo {
				if name == "follow" && to.follow {
					return app.Usagef("--follow needs --to TOPIC; skein tail --events follows a thread")
				}
				if cmd.Flags().Changed(name) {
					return app.Usagef("--%s needs --to TOPIC", name)
				}
			}
			path, run, form := client.ThreadPath(args[0]), "", client.TypeNDJSON
			if len(args) == 2 {
				run = args[1]
				path = client.RunPath(args[0], run)
			}
			switch {
			case sse && asJSON:
				return app.Usagef("pass --sse or --json, not both")
			case step && (sse || asJSON || all || branch != "" || len(types) > 0):
				return app.Usagef("--step shows the whole run; leave --sse, --json, --all, --branch and --type out")
			case step:
				if err := checkStepping(out, cmd.InOrStdin()); err != nil {
					return err
				}
				if !cmd.Flags().Changed("pace") {
					speed = 1
				}
				return at.connect(func(c *client.Client) error {
					err := startStepping(cmd, out, environ, steps.Run{Client: c, Path: path}, condition, between.Range, speed)
					return foundStep(err, out, at, args[0], run)
				})
			case run == "" && condition != nil:
				return app.Usagef("--until needs one run: name RUN")
			case run != "" && branch != "":
				return app.Usagef("--branch is for a whole thread; leave RUN out")
			case sse:
				form = client.TypeSSE
			case asJSON:
				form = client.TypeSequenced
			}
			q := url.Values{}
			set(q, "branch", branch)
			set(q, "from", between.From.String())
			set(q, "to", between.To.String())
			set(q, "pace", pace)
			set(q, "types", strings.Join(types, ","))
			if all {
				q.Set("all", "true")
			}
			return at.connect(func(c *client.Client) error {
				stopped := ""
				if condition != nil {
					var end record.Position
					if end, stopped, err = replayUntil(cmd.Context(), out, c, path, condition, between.Range); err != nil {
						return foundStep(err, out, at, args[0], run)
					}
					q.Set("to", end.String())
				}
				w := newReplayed(out)
				defer w.end()
				err := c.Copy(cmd.Context(), path+"/events", q, form, w)
				w.end()
				if err == nil && stopped != "" {
					out.note("%s", stopped)
				}
				if branch != "" { // the server says which of the two is not there
					return err
				}
				return found(err, out, at, args[0], run)
			})
		},
	}
	serverFlags(cmd, &at)
	f := cmd.Flags()
	f.StringVar(&branch, "branch", "", "only the runs of `BRANCH`, which is the id of its first run")
	between.flag(f)
	f.StringVar(&pace, "pace", "max", "`PACE`: max, recorded (with the original pauses), or a speed factor such as 10")
	f.StringVar(&until, "until", "", "stop at the first event of RUN after which `EXPR` is true, a CEL expression over messages, state and event")
	f.BoolVar(&step, "step", false, "step through the run in the terminal; --pace is its playback speed, by default recorded")
	f.StringSliceVar(&types, "type", nil, "only events of these `TYPES`, separated by commas, such as TOOL_CALL_START")
	f.BoolVar(&all, "all", false, "also inputs and records that were not folded; --json and --sse tell them apart")
	f.BoolVar(&sse, "sse", false, "print server-sent events, each with its position as id")
	f.BoolVar(&asJSON, "json", false, "print JSON Lines with position, time, run and outcome of each event; with --to, one document")
	to.flags(cmd)
	return cmd
}

// startStepping has a person walk a run, from where the flags say.
func startStepping(cmd *cobra.Command, out *output, environ []string, source steps.Source, condition *steps.Condition, between record.Range, speed replay.Pace) error {
	from := 0
	if condition != nil || between != (record.Range{}) {
		if condition == nil {
			var err error
			if condition, err = steps.NewCondition("true"); err != nil {
				return err
			}
		}
		m, err := findStep(cmd.Context(), out, source, condition, between)
		if err != nil {
			return err
		}
		from = m.N
	}
	return stepThrough(cmd.Context(), out, cmd.InOrStdin(), environ, source, from, speed)
}

// replayed writes a replay to stdout and shows how far it is, where that is not on the same screen.
type replayed struct {
	out    *output
	shows  bool
	lines  int
	bytes  int
	shown  time.Time
	target io.Writer
}

func newReplayed(out *output) *replayed {
	return &replayed{out: out, target: out.stdout, shows: !out.quiet && isTerminal(out.stderr) && !isTerminal(out.stdout)}
}

// Write implements io.Writer.
func (r *replayed) Write(b []byte) (int, error) {
	n, err := r.target.Write(b)
	r.lines += bytes.Count(b[:n], []byte{'\n'})
	r.bytes += n
	if now := time.Now(); r.shows && now.Sub(r.shown) > 100*time.Millisecond {
		r.shown = now
		_, _ = fmt.Fprintf(r.out.stderr, "\rreplay: %d lines, %d bytes\x1b[K", r.lines, r.bytes) // cosmetic
	}
	return n, err
}

// end takes the line away.
func (r *replayed) end() {
	if !r.shown.IsZero() {
		_, _ = fmt.Fprint(r.out.stderr, "\r\x1b[K") // cosmetic
	}
}
