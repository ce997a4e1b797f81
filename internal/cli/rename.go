package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/pkg/client"
)

func newRename(out *output) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rename THREAD TITLE",
		GroupID: groupWrite,
		Short:   "Give a thread a title",
		Long: `Give a thread a title, of at most 512 bytes on one line. An empty TITLE removes it. The thread's id stays.

The title shows once the thread has a run.`,
		Example: `  skein rename my-thread "Trip to Oslo"
  skein rename my-thread ""`,
		Args: usageArgs(cobra.ExactArgs(2)),
	}
	return patches(cmd, out, func(ctx context.Context, c *client.Client, args []string) (string, string, error) {
		at, err := c.SetTitle(ctx, args[0], args[1])
		if args[1] == "" {
			return at, "has no title any more", err
		}
		return at, fmt.Sprintf("has the title %q", oneLine(args[1], 80)), err
	})
}

func newArchive(out *output) *cobra.Command {
	undo := false
	cmd := &cobra.Command{
		Use:     "archive THREAD",
		GroupID: groupWrite,
		Short:   "Leave a thread out of lists",
		Long:    `Leave a thread out of lists of threads, unless they are asked for archived ones. Nothing of the thread is deleted.`,
		Example: `  skein archive my-thread
  skein archive my-thread --undo
  skein threads --archived yes`,
		Args: usageArgs(cobra.ExactArgs(1)),
	}
	patches(cmd, out, func(ctx context.Context, c *client.Client, args []string) (string, string, error) {
		at, err := c.SetArchived(ctx, args[0], !undo)
		if undo {
			return at, "is in lists again", err
		}
		return at, "is archived", err
	})
	cmd.Flags().BoolVar(&undo, "undo", false, "put the thread back into lists")
	return cmd
}

// patched is the result of a command that changes a thread's details.
type patched struct {
	ThreadID string `json:"threadId"`
	Position string `json:"position"` // of the patch
}

// patches completes a command that changes a thread's details. The function patch returns the patch's position, and what the thread now is.
// The command waits until reads have the change, for three seconds at most.
func patches(cmd *cobra.Command, out *output,
	patch func(ctx context.Context, c *client.Client, args []string) (at, is string, err error)) *cobra.Command {
	at := serverFlags(cmd, out)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { // not onServer: ingest does not know which threads exist
		return at.connect(func(c *client.Client) error {
			position, is, err := patch(cmd.Context(), c, args)
			if err != nil {
				return err
			}
			seen, stop := context.WithTimeout(cmd.Context(), 3*time.Second) // a thread can be renamed while query is away
			defer stop()
			if _, err := c.Get(seen, client.ThreadPath(args[0]), nil); client.IsNotFound(err) {
				out.note("there is no such thread yet: it is shown once it has a run")
			}
			return out.result(patched{args[0], position}, fmt.Sprintf("thread %s %s\n", oneLine(args[0], 80), is))
		})
	}
	jsonFlags(cmd, out)
	return cmd
}
