package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/client"
)

func newHistory(out *output) *cobra.Command {
	var follows bool
	cmd := &cobra.Command{
		Use:     "history THREAD [RUN]",
		GroupID: groupRead,
		Short:   "Print a conversation as it was at the end of a run",
		Long: `Print a conversation as it was at the end of a run: its messages and its state, equal to what the
official AG-UI client held then. Without RUN it is the tip of the thread with the latest start.

With --follow it shows the conversation as a chat and keeps following new events, as skein tail does.`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
	}
	onServer(cmd, out, func(ctx context.Context, c *client.Client, args []string) error {
		if follows {
			if out.asJSON {
				return app.Usagef("--follow shows a chat; skein tail -o jsonl prints what comes for machines")
			}
			chat := newChat(out, 0)
			return follow(ctx, out, c, args, chat.event, chat.end)
		}
		path, _ := runPath(args)
		var h conversation
		body, err := c.Fetch(ctx, path+"/history", nil, &h)
		switch {
		case err != nil:
			return err
		case out.form == formJSON:
			return out.document(body)
		case out.form == formJSONL:
			return out.lines(body, "messages")
		}
		return out.text(h.text(out))
	})
	formFlags(cmd, out, "`FORM` of the output: text, json (the API's answer) or jsonl (a line for each message)",
		formJSON, formText, formJSON, formJSONL)
	cmd.Flags().BoolVarP(&follows, "follow", "f", false, "keep following new events")
	return cmd
}
