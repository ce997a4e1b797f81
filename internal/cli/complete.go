package cli

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/client"
)

const (
	// completeWithin bounds the wait for the server after the Tab key.
	completeWithin = 2 * time.Second
	// completeMost is how many ids are offered.
	completeMost = 200
)

// completeRuns completes THREAD, then RUNs of it, by asking the server. Where it does not answer nothing is offered.
func completeRuns(at *server) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) (ids []cobra.Completion, _ cobra.ShellCompDirective) {
		if app.Configure(cmd, at.environ) != nil { // the command itself says why
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
		defer cancel()
		// An error has no place to be shown: the shell would take it for completions.
		_ = at.connect(func(c *client.Client) (err error) {
			if len(args) == 0 {
				ids, err = threadIDs(ctx, c, typed)
			} else {
				ids, err = runIDs(ctx, c, args[0])
			}
			return err
		})
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeThread completes THREAD, and nothing behind it.
func completeThread(at *server) cobra.CompletionFunc {
	runs := completeRuns(at)
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return runs(cmd, nil, typed)
	}
}

func threadIDs(ctx context.Context, c *client.Client, prefix string) (ids []string, err error) {
	q := url.Values{}
	set(q, "prefix", prefix)
	q.Set("limit", strconv.Itoa(completeMost))
	body, err := c.Get(ctx, "/v1/threads", q)
	if err != nil {
		return nil, err
	}
	var page struct {
		Threads []struct{ ThreadID string }
	}
	err = json.Unmarshal(body, &page)
	for _, t := range page.Threads {
		ids = append(ids, t.ThreadID)
	}
	return ids, err
}

// runIDs returns the ids of a thread's last runs.
func runIDs(ctx context.Context, c *client.Client, thread string) (ids []string, err error) {
	body, err := c.Get(ctx, client.ThreadPath(thread)+"/lineage", nil)
	if err != nil {
		return nil, err
	}
	var lineage struct {
		Runs []struct{ RunID string }
	}
	err = json.Unmarshal(body, &lineage)
	for _, r := range lineage.Runs[max(0, len(lineage.Runs)-completeMost):] {
		ids = append(ids, r.RunID)
	}
	return ids, err
}
