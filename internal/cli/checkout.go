package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/client"
)

func newCheckout(out *output) *cobra.Command {
	var runID, step string
	cmd := &cobra.Command{
		Use:     "checkout THREAD [RUN]",
		GroupID: groupRead,
		Short:   "Print an input from which any agent can continue a run",
		Long: `Print a RunAgentInput from which any agent can continue a run: its messages and state, the tools it had, a
new run id, and the run as the parent. Without RUN it is the tip of the thread with the latest start.

For each open interrupt, "resume" has an entry that cancels it, with the interrupt in its metadata. To
approve it, edit that entry.

--at selects an event to continue from, as in "skein state": messages and state are those after it, and a message
that was half written then is in it. At 0 or start it is the complete input that the run itself was started with, to run
it again as a branch beside it.`,
		Example: `  skein checkout my-thread run-1 >input.json
  skein checkout my-thread run-1 --at 17 >input.json
  skein checkout my-thread | curl -sN https://agent.example/run -H 'Content-Type: application/json' -d @-`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
	}
	onServer(cmd, out, func(ctx context.Context, c *client.Client, args []string) error {
		path, run := runPath(args)
		q := url.Values{"at": {step}}
		set(q, "runId", runID)
		body, err := c.Fetch(ctx, path+"/checkout", q, nil)
		if err != nil {
			return out.foundStep(err, args[0], run)
		}
		if err := out.document(body); err != nil || out.quiet {
			return err
		}
		return noteOpen(ctx, out, c, path, body)
	})
	cmd.Flags().StringVar(&runID, "run-id", "", "`ID` of the new run; by default a random one")
	cmd.Flags().StringVar(&step, "at", "end", "`STEP` to continue from: a number, a position such as 3:1024, @TIME, start or end")
	return cmd
}

// noteOpen prints notes on open interrupts, tool calls without a result, and inexact contents of the run at the path, if the input
// continues it.
func noteOpen(ctx context.Context, out *output, c *client.Client, path string, input []byte) error {
	in, err := agui.DecodeInput(input, "")
	if err != nil {
		return fmt.Errorf("decoding input: %w", err)
	}
	var r struct {
		conversation
		Interrupts []struct{ ID, Reason, Message string } `json:"interrupts"`
	}
	if in.ParentRunID == "" { // it starts the thread again
		return nil
	}
	if _, err := c.Fetch(ctx, path+"/history", url.Values{"limit": {"1"}}, &r); err != nil || r.RunID != in.ParentRunID {
		return err
	}
	for _, remark := range r.remarks() {
		out.note("run %s: %s", oneLine(in.ParentRunID, 80), remark)
	}
	for _, i := range r.Interrupts[:min(len(r.Interrupts), len(in.Resume))] { // none before the run's end
		out.note("interrupt %s is open (%s): the input cancels it unless you edit its entry in resume",
			oneLine(i.ID, 80), oneLine(i.Reason+" "+i.Message, 120))
	}
	for _, call := range withoutResult(in.Messages) {
		hint := "add a message of role tool"
		if text := call.Function.Arguments; text != "" && !json.Valid([]byte(text)) {
			hint = "its arguments are half written: remove it"
		}
		out.note("tool call %s has no result yet: %s", oneLine(call.ID, 80), hint)
	}
	return nil
}

// toolCall is a call in a message.
type toolCall struct {
	ID       string
	Function struct{ Arguments string }
}

// withoutResult returns the tool calls that no message of role tool answers.
func withoutResult(messages []agui.Message) (open []toolCall) {
	for _, raw := range messages {
		var m struct {
			ToolCallID string
			ToolCalls  []toolCall
		}
		if json.Unmarshal(raw.Raw, &m) != nil { // of another form: there is nothing to say of it
			continue
		}
		open = append(slices.DeleteFunc(open, func(c toolCall) bool { return raw.Role == agui.RoleTool && c.ID == m.ToolCallID }), m.ToolCalls...)
	}
	return open
}
