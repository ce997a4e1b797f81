package cli

import (
	"context"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/client"
)

const (
	// completeWithin bounds the wait for the server after the Tab key.
	completeWithin = 2 * time.Second
	// completeMost is how many ids are offered.
	completeMost = 200
)

// completeIDs completes THREAD from the server, then its RUNs if runs is true. It offers nothing if the server does not answer.
func completeIDs(at *server, runs bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) (ids []cobra.Completion, _ cobra.ShellCompDirective) {
		if len(args) > 0 && !runs || app.Configure(cmd, at.out.environ) != nil { // the command itself reports the error
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
		defer cancel()
		// Drop the error, since the shell would take its text for completions.
		_ = at.connect(func(c *client.Client) (err error) {
			if len(args) == 0 {
				q := url.Values{}
				set(q, "prefix", typed)
				ids, err = threadIDs(ctx, c, q, completeMost)
				return err
			}
			lineage, err := c.Lineage(ctx, args[0])
			for _, r := range lineage.Runs[max(0, len(lineage.Runs)-completeMost):] {
				ids = append(ids, r.RunID)
			}
			return err
		})
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}
