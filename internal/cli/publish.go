package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/fold"
)

type publishOptions struct {
	thread, run, input string
	from               int64
	noWait, skipBad    bool
	producer           client.Producer
}

// published is the answer of "skein publish --json".
type published struct {
	ThreadID string `json:"threadId"`
	RunID    string `json:"runId"`
	// InputPosition is the input's position, "partition:offset"; absent if none was sent.
	InputPosition string `json:"inputPosition,omitempty"`
	client.Ack
	// Skipped is how many bad events --skip-bad has left out.
	Skipped int `json:"skipped,omitempty"`
	// Repeated and Different are absent if the run was not known before. They replace those of Ack.
	Repeated  *int64 `json:"repeated,omitempty"`
	Different *int64 `json:"different,omitempty"`
}

func newPublish(out *output) *cobra.Command {
	var at *server
	var o publishOptions
	var labels []string
	cmd := &cobra.Command{
		Use:     "publish [FILE]",
		GroupID: groupWrite,
		Short:   "Send the events of runs to the HTTP API",
		Long: `Send the events of a run (NDJSON, SSE, a JSON array or JSON that spans lines) from FILE or stdin to the HTTP
API. If neither --run nor --input names the run, a RUN_STARTED after the run's end, or of another run,
begins the next one.

Every event carries its number in the run, so an event that is sent again is dropped. If publishing was
interrupted, repeat the same command, or continue with --from and the number that it printed. If a run has
other events of the same numbers, the exit code is 4: those are kept, and these are dropped. With --no-wait,
only what ingest received lately is compared.

An event that no AG-UI client can read is sent, and printed with the reason; if there is no other, the exit
code is 1. A line that is no event ends the command, or, with --skip-bad, is left out; the exit code is then 1, too.

Thread and run are those of --thread and --run, else those of --input or of the first event.

After ingest has acknowledged, the command waits a few seconds until the last event can be read, so that
history and lineage show what was published. Ctrl-C stops after the events sent so far.`,
		Example: `  skein publish run.jsonl --input run.input.json
  skein publish run.jsonl --agent support --label user=ann
  curl -sSN https://agent.example/run -H 'Content-Type: application/json' -d @input.json | skein publish --input input.json`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "-"
			if len(args) == 1 {
				path = args[0]
			}
			events, err := openEvents(path, cmd.InOrStdin())
			if err != nil {
				return err
			}
			defer func() { _ = events.Close() }() // read only
			if err := o.takeLabels(labels); err != nil {
				return err
			}
			if o.from < 0 {
				return app.Usagef("from %d is negative", o.from)
			}
			return publish(cmd.Context(), out, at, o, events)
		},
	}
	at = serverFlags(cmd, out)
	jsonFlags(cmd, out)
	cmd.Flags().StringVar(&o.thread, "thread", "", "the thread's `ID`")
	cmd.Flags().StringVar(&o.run, "run", "", "the run's `ID`")
	cmd.Flags().StringVar(&o.input, "input", "", "`FILE` with the run's RunAgentInput, sent before the first event")
	cmd.Flags().StringVar(&o.producer.Agent, "agent", "", "`NAME` of the agent that produced the runs")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "label of the runs, as `KEY=VALUE`; repeatable")
	cmd.Flags().BoolVar(&o.noWait, "no-wait", false, "do not wait until the published events can be read")
	cmd.Flags().BoolVar(&o.skipBad, "skip-bad", false, "leave out lines that are no events, print the first reasons, and exit with 1")
	cmd.Flags().Int64Var(&o.from, "from", 0, "skip the first `N` events: they were accepted in an earlier try")
	return cmd
}

// answerGrace limits how long the command waits for ingest's answer after Ctrl-C.
const answerGrace = 2 * time.Second

// errInterrupted means that Ctrl-C ended the command.
var errInterrupted = errors.New("interrupted")

func publish(ctx context.Context, out *output, at *server, o publishOptions, r io.Reader) error {
	head := &headReader{r: r}
	feed := startFeed(head, o.skipBad)
	defer feed.stop()
	run := runBody{skip: o.from}
	for run.first.event == nil || run.first.bad {
		select {
		case run.first = <-feed.items:
		case <-ctx.Done():
			return ctx.Err()
		}
		switch {
		case run.first.bad:
			run.skipped.add(int64(len(run.skipped.seqs)), run.first.err.Error())
		case errors.Is(run.first.err, io.EOF) && len(run.skipped.seqs) > 0:
			return notAStream(out, head, skippedError(run.skipped))
		case errors.Is(run.first.err, io.EOF):
			return app.Usagef("reading events: there are none; if an agent sends them, check that it answers: curl -sS prints its errors")
		case run.first.err != nil:
			return notAStream(out, head, run.first.err)
		}
	}
	var input []byte
	if o.input != "" {
		var err error
		if input, err = readInput(o.input); err != nil {
			return app.Usagef("reading input: %w", err)
		}
	}
	thread := o.thread
	run.several = o.run == "" && input == nil
	if err := o.takeIDs(input, run.first.event); err != nil {
		return err
	}
	return at.connect(func(c *client.Client) error {
		c = c.As(o.producer)
		var skipped faults
		var fault error // of the first run that has one; the others are notes
		for {
			sent, err := publishRun(ctx, out, c, o, input, feed, run)
			skipped.join(sent.skipped)
			if fault == nil {
				fault = sent.fault
			} else if sent.fault != nil {
				out.note("%v", sent.fault)
			}
			if err == nil && sent.next.event == nil && len(skipped.seqs) > 0 {
				err = skippedError(skipped)
			}
			if err != nil || sent.next.event == nil {
				return errors.Join(err, fault)
			}
			o.thread, o.run, o.from, input = thread, "", 0, nil
			if err := o.takeIDs(nil, sent.next.event); err != nil {
				return err
			}
			run = runBody{first: sent.next, several: run.several}
		}
	})
}

func skippedError(f faults) error {
	return fmt.Errorf("left out %s: %s", count(len(f.seqs), "bad line"), f.text())
}

// These limit the part of a file that notAStream prints.
const (
	maxHeadBytes = 1000
	maxHeadLines = 5
)

// headReader keeps the first bytes that it reads. Do not use head until the feed has ended.
type headReader struct {
	r    io.Reader
	head []byte
}

// Read implements io.Reader.
func (h *headReader) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	h.head = append(h.head, p[:min(n, maxHeadBytes-len(h.head))]...)
	return n, err
}

// notAStream prints the first lines of input that is not an event stream, and returns err with advice. Such input is mostly an
// error message of the agent, which the pipe would otherwise hide.
func notAStream(out *output, h *headReader, err error) error {
	lines := strings.Split(strings.TrimSpace(string(bytes.ToValidUTF8(h.head, []byte("\uFFFD")))), "\n")
	text := "This is not an AG-UI event stream. It begins with:\n"
	for _, line := range lines[:min(len(lines), maxHeadLines)] {
		text += indent(oneLine(line, 400), "  ", out.width())
	}
	if _, err := io.WriteString(out.stderr, text); err != nil {
		return err
	}
	return fmt.Errorf("%w; if an agent sends it, check its URL and that the request has the header Content-Type: application/json", err)
}

// publishRun sends the events of one run.
func publishRun(
	ctx context.Context, out *output, c *client.Client, o publishOptions, input []byte, feed *feed, run runBody,
) (sent sentEvents, err error) {
	result := published{ThreadID: o.thread, RunID: o.run}
	if o.from > 0 { // the input was accepted before the events that ingest already has: another one would count as late
		input = nil
	}
	ack, sent, err := sendRun(ctx, c, o, input, feed, run)
	if err != nil {
		return sent, err
	}
	result.InputPosition = ack.InputPosition
	result.Ack, result.Skipped = ack.Ack, len(sent.skipped.seqs)
	var unreadable []string
	for _, w := range ack.Warnings {
		text := oneLine(w.Detail, 400)
		if w.Line > 0 {
			text = fmt.Sprintf("event %d: %s", w.Line, text)
		}
		switch w.Anomaly {
		case fold.AnomalyMalformed, agui.RuleUnknownType:
			unreadable = append(unreadable, text)
			out.note("warning: no client can read %s (%s)", text, w.Anomaly)
		default:
			out.note("warning: %s; the run counts it as an anomaly (%s)", text, w.Anomaly)
		}
	}
	if sent.err != nil {
		return sent, endedEarly(sent, ack.Ack)
	}
	if n := ack.Unreadable; n > maxReasons && n < ack.Accepted {
		out.note("warning: no client can read %d of %s", n, count(ack.Accepted, "event"))
	}
	again := &repeats{ack.Repeated, ack.Different}
	if *again == (repeats{}) {
		again = nil
	}
	if !o.noWait && ack.Accepted > 0 {
		counted, err := countRepeats(ctx, c, result)
		if err != nil && again == nil {
			out.note("it is unknown whether the events are those that run %s had before: %v", oneLine(o.run, 80), err)
		}
		again = cmp.Or(counted, again) // ingest knows only what it received lately
	}
	if again != nil {
		result.Repeated, result.Different = &again.Repeated, &again.Different
	}
	if err := out.result(result, result.text()); err != nil {
		return sent, err
	}
	if again != nil && again.Different > 0 {
		sent.fault = app.Differsf("%s of run %s dropped: Skein has others of the same numbers (%d repeated as they were); publish them with another run id",
			count(again.Different, "event"), oneLine(o.run, 80), again.Repeated)
	}
	if ack.Accepted > 0 && ack.Unreadable >= ack.Accepted && sent.fault == nil {
		sent.fault = fmt.Errorf("no client can read any of %s of run %s: %s",
			count(ack.Accepted, "event"), oneLine(o.run, 80), reasonsOf(unreadable[:min(len(unreadable), maxReasons)], int(ack.Unreadable)))
	}
	if !o.noWait && ack.Accepted > 0 && sent.next.event == nil && sent.fault == nil {
		awaitIndexed(ctx, out, c, result, isTerminalEvent(sent.last), indexedWithin)
	}
	return sent, nil
}

// sendRun sends a run's input and events. Ctrl-C ends the events; sendRun then waits for ingest's answer for at most answerGrace.
func sendRun(
	ctx context.Context, c *client.Client, o publishOptions, input []byte, feed *feed, run runBody,
) (client.Published, sentEvents, error) {
	request, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(answerGrace):
			giveUp()
		case <-request.Done():
		}
	})
	defer stop()
	var sent sentEvents
	ack, err := c.Publish(request, o.thread, o.run, input, feed.run(run, ctx.Done(), &sent))
	sent.from = ack.Next
	switch {
	case err == nil, errors.Is(err, sent.err):
		return ack, sent, nil
	case ctx.Err() != nil:
		if errors.Is(err, context.Canceled) {
			err = fmt.Errorf("no answer in %v", answerGrace)
		}
		return ack, sent, fmt.Errorf("%w: how much was accepted is not known (%w): %s", errInterrupted, err, repeatHint)
	}
	return ack, sent, resumeHint(err, ack)
}

// text describes what ingest has acknowledged.
func (p published) text() string {
	return fmt.Sprintf("%s of run %s in thread %s at %d:%d to %d:%d\n", count(p.Accepted, "event"),
		oneLine(p.RunID, 80), oneLine(p.ThreadID, 80), p.Partition, p.FirstOffset, p.Partition, p.LastOffset)
}

// repeatHint is the hint if the number of events that arrived is unknown.
const repeatHint = "repeat the same command: events are numbered, and Skein drops those that it has"

// resumeHint adds instructions for continuing to an error.
func resumeHint(err error, sent client.Published) error {
	switch {
	case errors.Is(err, client.ErrUnreachable):
		return fmt.Errorf("%w; %s", err, repeatHint)
	case sent.Accepted > 0:
		return fmt.Errorf("%w; %s accepted: correct the rest and continue with --from %d", err, count(sent.Accepted, "event"), sent.Next)
	}
	return err
}

// endedEarly adds to the error that ended the events how many events were acknowledged, and how to continue.
func endedEarly(sent sentEvents, ack client.Ack) error {
	if !errors.Is(sent.err, errInterrupted) {
		return fmt.Errorf("sending events: %w; %s accepted: correct the rest and continue with --from %d, or repeat with --skip-bad",
			sent.err, count(ack.Accepted, "event"), sent.from)
	}
	if ack.Accepted == 0 {
		return fmt.Errorf("%w: no event was accepted", sent.err)
	}
	return fmt.Errorf("%w: %s accepted, up to %d:%d: repeat the same command, or continue with --from %d",
		sent.err, count(ack.Accepted, "event"), ack.Partition, ack.LastOffset, sent.from)
}

// labelKey matches keys that may be part of an HTTP header's name.
var labelKey = regexp.MustCompile(`^[a-zA-Z0-9_.-]+$`)

// takeLabels parses KEY=VALUE labels, and checks the labels and the agent's name.
func (o *publishOptions) takeLabels(labels []string) error {
	for _, l := range labels {
		key, value, ok := strings.Cut(l, "=")
		if !ok || !labelKey.MatchString(key) {
			return app.Usagef("reading label %q: want KEY=VALUE, the key of letters, digits, '.', '_' and '-'", l)
		}
		if o.producer.Labels == nil {
			o.producer.Labels = map[string]string{}
		}
		key = strings.ToLower(key) // the server also lowers keys
		if _, twice := o.producer.Labels[key]; twice {
			return app.Usagef("reading label %q: there is another one of this key", l)
		}
		o.producer.Labels[key] = value
	}
	for _, v := range append(slices.Collect(maps.Values(o.producer.Labels)), o.producer.Agent) {
		if !utf8.ValidString(v) || strings.ContainsFunc(v, unicode.IsControl) || strings.TrimSpace(v) != v {
			return app.Usagef("reading agent and labels: %q is not a line of text without blanks around it", v)
		}
	}
	return nil
}

// takeIDs sets thread and run from the input, else from the first event, unless flags have set them.
func (o *publishOptions) takeIDs(input, first []byte) error {
	if input != nil {
		in, err := agui.DecodeInput(input, "")
		if err != nil {
			return fmt.Errorf("reading input: %w", err)
		}
		o.thread, o.run = cmp.Or(o.thread, in.ThreadID), cmp.Or(o.run, in.RunID)
	}
	ev, err := agui.Decode(first)
	if err == nil {
		o.thread, o.run = cmp.Or(o.thread, ev.ThreadID), cmp.Or(o.run, ev.RunID)
	}
	if o.thread != "" && o.run != "" {
		return nil
	}
	if err != nil {
		return app.Usagef("the first event names no thread and run: %w; pass --thread ID --run ID", err)
	}
	return app.Usagef("neither --input nor the first event names thread and run: pass --thread ID --run ID")
}
