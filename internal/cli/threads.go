package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/client"
	"github.com/skeinhq/skein/pkg/store"
)

// found turns a 404 into the exit code for it, and a sentence that says what to do.
func found(err error, out *output, at server, thread, run string) error {
	if !client.IsNotFound(err) {
		return err
	}
	if run != "" {
		return app.NotFoundf("there is no run %s in thread %s; its runs: %s", oneLine(run, 80), oneLine(thread, 80), out.hint(at, "lineage", thread))
	}
	return app.NotFoundf("there is no thread %s; all threads: %s", oneLine(thread, 80), out.hint(at, "threads"))
}

type threadsPage struct {
	Threads []json.RawMessage `json:"threads"`
	Next    string            `json:"next"`
}

func newThreads(out *output, environ []string) *cobra.Command {
	at := server{environ: environ}
	var prefix, status, agent string
	var asJSON bool
	var limit int
	cmd := &cobra.Command{
		Use:     "threads",
		GroupID: groupRead,
		Short:   "List threads",
		Example: `  skein threads
  skein threads --status interrupted --json | jq -r .threadId`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return app.Usagef("limit %d is negative", limit)
			}
			return at.connect(func(c *client.Client) error {
				q := url.Values{}
				set(q, "prefix", prefix)
				set(q, "status", status)
				set(q, "agent", agent)
				var list []store.Thread
				n, err := eachThread(cmd.Context(), c, q, limit, func(raw json.RawMessage) error {
					if asJSON {
						return out.document(raw)
					}
					var t store.Thread
					if err := json.Unmarshal(raw, &t); err != nil {
						return fmt.Errorf("decoding thread: %w", err)
					}
					list = append(list, t)
					return nil
				})
				if err != nil || asJSON {
					return err
				}
				if n == 0 {
					out.note("no threads")
					return nil
				}
				return printThreads(out, list)
			})
		},
	}
	serverFlags(cmd, &at)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().StringVar(&prefix, "prefix", "", "only threads whose id starts with `TEXT`")
	cmd.Flags().StringVar(&status, "status", "", "only threads whose last run is `STATUS`: running, finished, error, interrupted, cancelled or abandoned")
	cmd.Flags().StringVar(&agent, "agent", "", "only threads with a run of the agent `NAME`")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most `N` threads; 0 is all")
	return cmd
}

// eachThread walks all pages of threads, at most limit threads where limit is not 0, and returns
// how many there were.
func eachThread(ctx context.Context, c *client.Client, q url.Values, limit int, f func(json.RawMessage) error) (int, error) {
	const pageSize = 200
	q.Set("limit", strconv.Itoa(pageSize))
	if limit > 0 && limit < pageSize {
		q.Set("limit", strconv.Itoa(limit))
	}
	n := 0
	for {
		body, err := c.Get(ctx, "/v1/threads", q)
		if err != nil {
			return n, err
		}
		var page threadsPage
		if err := json.Unmarshal(body, &page); err != nil {
			return n, fmt.Errorf("decoding threads: %w", err)
		}
		for _, raw := range page.Threads {
			if err := f(raw); err != nil {
				return n, err
			}
			if n++; n == limit {
				return n, nil
			}
		}
		if page.Next == "" {
			return n, nil
		}
		q.Set("after", page.Next)
	}
}

func printThreads(out *output, list []store.Thread) error {
	w := tabwriter.NewWriter(out.stdout, 0, 0, 2, ' ', 0)
	// A tabwriter keeps errors until Flush.
	_, _ = fmt.Fprintln(w, "THREAD\tRUNS\tBRANCHES\tMESSAGES\tSTATUS\tUPDATED")
	room := max(out.width()-60, 24)
	for _, t := range list {
		status := t.Status
		if t.OpenRuns > 0 && t.Status != "running" {
			status += fmt.Sprintf(" (%d running)", t.OpenRuns)
		}
		_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\n", oneLine(t.ThreadID, room), t.Runs, t.Branches, t.Messages, status, t.UpdatedAt.UTC().Format(time.RFC3339))
	}
	return w.Flush()
}

func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}
