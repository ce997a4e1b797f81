package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/record"
)

func newCancel(out *output) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "cancel THREAD [RUN]",
		GroupID: groupWrite,
		Short:   "Stop a run, whichever process holds it",
		Long: `Stop a run, whichever process holds it: Skein's proxy closes the agent's connection and ends the run in
its place. An agent that writes to Kafka itself may read the request and end its run. Without RUN, stop
every open run of the thread, and every start that waits for it.

The command waits for the run's end, usually some milliseconds, and prints how it ended. The exit code is 1
if it had ended before, or if no process holds it.`,
		Example: `  skein cancel my-thread run-7
  skein cancel my-thread run-7 --reason "the user pressed stop" --json`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
	}
	at := serverFlags(cmd, out)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { // not onServer: ingest does not know which runs exist
		return at.connect(func(c *client.Client) error {
			ctx := cmd.Context()
			if len(args) == 1 {
				answer, err := c.CancelRun(ctx, args[0], "", reason)
				if err != nil {
					return fmt.Errorf("stopping the runs of thread %s: %w", oneLine(args[0], 80), err)
				}
				return out.result(answer, cancelledText(answer))
			}
			before, stop := context.WithTimeout(ctx, 2*time.Second) // a run can be stopped while query is away
			defer stop()
			run, _ := c.LastRun(before, args[0], args[1])
			if run.Ended() {
				return notCancelled(run.Status, args[0], args[1], nil)
			}
			answer, err := c.CancelRun(ctx, args[0], args[1], reason)
			if err != nil {
				after, stop := context.WithTimeout(ctx, 2*time.Second)
				defer stop()
				run, asking := c.LastRun(after, args[0], args[1])
				if refused := new(client.Error); errors.As(err, &refused) && refused.Status == http.StatusConflict && client.IsNotFound(asking) {
					return out.found(asking, args[0], args[1])
				}
				return notCancelled(run.Status, args[0], args[1], err)
			}
			return out.result(answer, cancelledText(answer))
		})
	}
	jsonFlags(cmd, out)
	cmd.Flags().StringVar(&reason, "reason", "", "reason, as `TEXT` of up to 1024 bytes, for people to read")
	return cmd
}

func cancelledText(a client.Cancelled) string {
	name := fmt.Sprintf("run %s of thread %s", oneLine(a.RunID, 80), oneLine(a.ThreadID, 80))
	switch {
	case a.Status != string(record.StatusCancelled):
		return fmt.Sprintf("%s ended by itself: %s, at %s\n", name, a.Status, a.End)
	case a.Synthetic:
		return fmt.Sprintf("%s is cancelled, at %s; Skein wrote its end\n", name, a.End)
	}
	return fmt.Sprintf("%s is cancelled, at %s\n", name, a.End)
}

// notCancelled returns the reason why a run was not stopped. Ingest answers 409 if the run did not end; the run's status in the
// index tells more.
func notCancelled(known, thread, run string, err error) error {
	name := fmt.Sprintf("stopping run %s of thread %s", oneLine(run, 80), oneLine(thread, 80))
	var refused *client.Error
	switch {
	case err != nil && (!errors.As(err, &refused) || refused.Status != http.StatusConflict), known == "":
		return fmt.Errorf("%s: %w", name, err)
	case known == string(record.StatusRunning):
		return fmt.Errorf("%s: it goes on: no proxy of Skein holds it, and its agent did not react to the request", name)
	}
	return fmt.Errorf("%s: it had already ended: %s", name, known)
}
