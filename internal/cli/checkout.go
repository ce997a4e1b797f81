package cli

import (
	"context"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/client"
)

func newCheckout(out *output) *cobra.Command {
	var runID string
	var start bool
	cmd := &cobra.Command{
		Use:     "checkout THREAD [RUN]",
		GroupID: groupRead,
		Short:   "Print an input from which any agent can continue a run",
		Long: `Print a RunAgentInput from which any agent can continue a run: its messages and state, the tools it had, a
new run id, and the run as the parent. Without RUN it is the tip of the thread with the latest start.

For each open interrupt, "resume" has an entry that cancels it, with the interrupt in its metadata. To
approve it, edit that entry. With --start it prints the complete input that the run itself was started with,
to run it again as a branch beside it.`,
		Example: `  skein checkout my-thread run-1 >input.json
  skein checkout my-thread | curl -sN https://agent.example/run -H 'Content-Type: application/json' -d @-`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
	}
	onServer(cmd, out, func(ctx context.Context, c *client.Client, args []string) error {
		path, _ := runPath(args)
		q := url.Values{}
		set(q, "runId", runID)
		if start {
			q.Set("at", "start")
		}
		body, err := c.Get(ctx, path+"/checkout", q)
		if err != nil {
			return err
		}
		if err := out.document(body); err != nil || out.quiet || start {
			return err
		}
		return noteOpen(ctx, out, c, args[0], body)
	})
	cmd.Flags().StringVar(&runID, "run-id", "", "`ID` of the new run; by default a random one")
	cmd.Flags().BoolVar(&start, "start", false, "print the input that the run itself was started with")
	return cmd
}

// noteOpen prints notes on open interrupts, tool calls without a result, and inexact contents of the run which the input continues.
func noteOpen(ctx context.Context, out *output, c *client.Client, thread string, input []byte) error {
	in, err := agui.DecodeInput(input, "")
	if err != nil {
		return fmt.Errorf("decoding input: %w", err)
	}
	var r struct {
		conversation
		Interrupts       []struct{ ID, Reason, Message string }
		PendingToolCalls []string
	}
	if _, err := fetch(ctx, c, client.RunPath(thread, in.ParentRunID), nil, "run", &r); err != nil {
		return err
	}
	for _, remark := range r.remarks() {
		out.note("run %s: %s", oneLine(in.ParentRunID, 80), remark)
	}
	for _, i := range r.Interrupts {
		out.note("interrupt %s is open (%s): the input cancels it unless you edit its entry in resume",
			oneLine(i.ID, 80), oneLine(i.Reason+" "+i.Message, 120))
	}
	for _, id := range r.PendingToolCalls {
		out.note("tool call %s has no result yet: add a message of role tool", oneLine(id, 80))
	}
	return nil
}
