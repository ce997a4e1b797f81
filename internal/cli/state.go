package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/steps"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/timeline"
)

func newState(out *output) *cobra.Command {
	var step string
	cmd := &cobra.Command{
		Use:     "state THREAD [RUN]",
		GroupID: groupRead,
		Short:   "Print a conversation as it was at any event of a run",
		Long: `Print a conversation as it was after an event of a run: its messages and its state, equal to what the official
AG-UI client held then, and what that event changed. Without RUN it is the tip of the thread with the latest start.

--at selects the event: by the number of its step (1 is the run's first event, 0 its start: what its input changed), by its
position, by @ and a time, or as start or end. The raw events have to exist still.`,
		Example: `  skein state my-thread run-1 --at 17
  skein state my-thread run-1 --at 3:1024 --json | jq .state
  skein state my-thread run-1 --at @2026-09-17T12:00:00Z`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
	}
	onServer(cmd, out, func(ctx context.Context, c *client.Client, args []string) error {
		path, run := runPath(args)
		var s stateAt
		body, err := c.Fetch(ctx, path+"/state", url.Values{"at": {step}}, &s)
		switch {
		case err != nil:
			return out.foundStep(err, args[0], run)
		case out.asJSON:
			return out.document(body)
		}
		return s.print(out)
	})
	cmd.Flags().StringVar(&step, "at", "end", "`STEP` to stop at: a number, a position such as 3:1024, @TIME, start or end")
	jsonFlags(cmd, out)
	return cmd
}

// foundStep is like found, but for requests that name a step.
func (o *output) foundStep(err error, thread, run string) error {
	var refused *client.Error
	switch {
	case !errors.As(err, &refused):
		return err
	case refused.Status == http.StatusBadRequest && strings.HasPrefix(refused.Detail, "at "):
		return app.Usagef("--%s", oneLine(refused.Detail, 1000))
	case refused.Status == http.StatusNotFound:
		var problem struct{ Total *int }
		if json.Unmarshal(refused.Body, &problem) == nil && problem.Total != nil {
			return app.NotFoundf("%s", oneLine(refused.Detail, 1000))
		}
	}
	return o.found(err, thread, run)
}

// stateAt is the part of a state answer that the command shows.
type stateAt struct {
	conversation
	Total     int `json:"total"`
	LateError *record.LateError
	Step      steps.Step
}

// print prints the step, the step's changes, and the conversation after the step.
func (s stateAt) print(out *output) error {
	var patch []operation
	if len(s.Step.Change.State) > 0 {
		if err := decode(s.Step.Change.State, "patch of the state", &patch); err != nil {
			return err
		}
	}
	p := differencePrinter{paint: out.paint, width: out.width()}
	p.b.WriteString(out.bold(oneLine(stepTitle(s.Step, s.Total, s.LateError), p.width)) + "\n")
	p.step(s.Step.Change.Messages, patch)
	if s.Step.N < s.Total {
		s.moment = fmt.Sprintf("at step %d of %d", s.Step.N, s.Total)
	}
	return out.text(p.b.String() + "\n" + s.conversation.text(out))
}

// stepTitle describes a step in a line.
func stepTitle(s steps.Step, total int, late *record.LateError) string {
	what := string(s.Type)
	switch {
	case s.Kind == record.KindInput && s.N == 0:
		what = "the start, by the run's input"
	case s.N == 0:
		what = "the start"
	case s.Kind == record.KindInput:
		what = "an input that came too late to count"
	case s.Outcome != fold.Folded:
		what = strings.TrimSpace(what + " (" + string(s.Outcome) + ")")
	}
	line := fmt.Sprintf("step %d of %d: %s", s.N, total, what)
	if s.Position != nil && s.Time != nil {
		line += ", at " + s.Position.String() + ", " + s.Time.Format(time.RFC3339Nano)
	}
	if late != nil && s.N == total {
		line += "; later the run failed: " + runError(late.Event)
	}
	return line
}

// step prints the changes of a step: the changes of messages, and the patch of the state.
func (p *differencePrinter) step(messages []timeline.MessageChange, patch []operation) {
	names := toolNames{}
	for _, c := range messages {
		m := decodedMessage(c.Message)
		switch c.Op {
		case timeline.Add:
			p.message(styleNew, "+", names.who(m), m)
		case timeline.Remove:
			p.message(styleGone, "-", names.who(m), m)
		case timeline.Append:
			where := ""
			if c.Path != "/content" {
				where = ", " + strings.TrimPrefix(c.Path, "/")
			}
			p.line(styleChanged, "~ message "+string(c.MessageID)+where)
			p.block(styleNew, indent(agui.TextOf(c.Text).String(), "  + ", p.width))
		default:
			p.message(styleChanged, "~", names.who(m), m)
		}
	}
	if len(patch) > 0 {
		p.line(styleChanged, "~ state")
		p.patch("  ", patch)
	}
	if len(messages)+len(patch) == 0 {
		p.b.WriteString("it changed nothing\n")
	}
}
