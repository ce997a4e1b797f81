package cli

import (
	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/client"
)

func newHistory(out *output, environ []string) *cobra.Command {
	at := server{environ: environ}
	var follows bool
	var form string
	cmd := &cobra.Command{
		Use:     "history THREAD [RUN]",
		GroupID: groupRead,
		Short:   "Print a conversation as it was at the end of a run",
		Long: `Print a conversation as it was at the end of a run: its messages and its state, equal to what the
official AG-UI client held then. Without RUN it is the tip of the thread with the latest start.

With --follow it shows the conversation as a chat and keeps following new events, as skein tail does.`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if follows {
				if form != formText {
					return app.Usagef("--follow shows a chat; skein tail -o jsonl prints what comes for machines")
				}
				c := newChat(out, 0)
				return follow(cmd.Context(), out, &at, args, c.event, c.end)
			}
			path, run := runPath(args)
			return at.connect(func(c *client.Client) error {
				var h conversation
				body, err := fetch(cmd.Context(), c, path+"/history", nil, "history", &h)
				switch {
				case err != nil:
					return found(err, out, at, args[0], run)
				case form == formJSON:
					return out.document(body)
				case form == formJSONL:
					return out.lines(body, "messages")
				}
				return printConversation(out, h)
			})
		},
	}
	serverFlags(cmd, &at)
	formFlags(cmd, &form, "`FORM` of the output: text, json (the API's answer) or jsonl (a line for each message)",
		formJSON, formText, formJSON, formJSONL)
	cmd.Flags().BoolVarP(&follows, "follow", "f", false, "keep following new events")
	return cmd
}
