package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/store"
)

// The orders of skein threads.
const (
	sortUpdated = "updated"
	sortStarted = "started"
	sortID      = "id"
)

// maxTitle is the number of characters of a title in a list; JSON has the whole one.
const maxTitle = 60

type threadsOptions struct {
	prefix, status, agent string
	part, since, sort     string
	archived              string
	limit                 int
	watch                 bool
}

func newThreads(out *output) *cobra.Command {
	var o threadsOptions
	cmd := &cobra.Command{
		Use:     "threads [TEXT]",
		GroupID: groupRead,
		Short:   "List threads, most recently changed first",
		Long: `List threads, most recently changed first. With TEXT, only threads whose id or title contains it. Archived threads
are left out, unless --archived asks for them.

On a terminal, ids are never cut, and columns that do not fit are left out; -o wide prints all columns. Elsewhere the
list is tab-separated, without a header, with times in UTC: id, title, last change, status, runs, branches, messages.
Except with --sort id, the command reads the whole list before it prints anything.`,
		Example: `  skein threads
  skein threads order-17 --since 24h
  skein threads --status interrupted -o name`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
	}
	onServer(cmd, out, func(ctx context.Context, c *client.Client, args []string) error {
		if len(args) == 1 {
			o.part = args[0]
		}
		q, err := o.query(time.Now())
		if err != nil {
			return err
		}
		show := func(ctx context.Context, out *output) error { return listThreads(ctx, out, c, q, o) }
		if o.watch {
			return out.watch(ctx, show)
		}
		return show(ctx, out)
	})
	listFlags(cmd, out)
	watchFlag(cmd, &o.watch)
	cmd.Flags().StringVar(&o.prefix, "prefix", "", "only threads whose id starts with `TEXT`")
	choiceFlag(cmd, &o.status, "status", "", "", "only threads whose last run is `STATUS`: "+orList(texts(search.Statuses)),
		texts(search.Statuses)...)
	cmd.Flags().StringVar(&o.agent, "agent", "", "only threads with a run of the agent `NAME`")
	choiceFlag(cmd, &o.archived, "archived", "", search.ArchivedNo, "`WHICH` threads: no (not archived), yes (archived) or all",
		search.ArchivedNo, search.ArchivedYes, search.ArchivedAll)
	cmd.Flags().StringVar(&o.since, "since", "",
		"only threads that changed since `TIME`: 2026-09-17T12:00:00Z, or how long ago, such as 90m or 24h")
	choiceFlag(cmd, &o.sort, "sort", "", sortUpdated, "`ORDER` of the list: updated or started (latest first) or id",
		sortUpdated, sortStarted, sortID)
	cmd.Flags().IntVar(&o.limit, "limit", 0, "at most `N` threads; 0 is all")
	return cmd
}

// query checks the options and returns the parameters of the API request.
func (o *threadsOptions) query(now time.Time) (url.Values, error) {
	if o.limit < 0 {
		return nil, app.Usagef("limit %d is negative", o.limit)
	}
	q := url.Values{}
	set(q, "prefix", o.prefix)
	set(q, "status", o.status)
	set(q, "agent", o.agent)
	if o.archived != search.ArchivedNo {
		q.Set("archived", o.archived)
	}
	if o.since != "" {
		if ago, err := time.ParseDuration(o.since); err == nil {
			o.since = now.Add(-ago).Format(time.RFC3339Nano)
		}
		f, err := search.ParseFilter(url.Values{search.ParamSince: {o.since}}, now)
		if err != nil {
			return nil, flagError(err)
		}
		q.Set("since", f.Since.UTC().Format(time.RFC3339Nano))
	}
	return q, nil
}

// listThreads prints the list. If the order is by id, which is the server's order, it prints each thread as it comes.
func listThreads(ctx context.Context, out *output, c *client.Client, q url.Values, o threadsOptions) error {
	l := lister{out: out, none: "no threads", columns: []column{
		{name: "THREAD", keep: true}, {name: "TITLE"}, {name: "UPDATED"}, {name: "STATUS"}, {name: "RUNS", right: true},
		{name: "BRANCHES", right: true}, {name: "MESSAGES", right: true}, {name: "STARTED", wide: true}, {name: "LAST RUN", wide: true},
	}}
	var all []listedThread
	limit := o.limit
	if o.part != "" || o.sort != sortID {
		limit = 0 // the limit applies after filtering and sorting
	}
	err := eachThread(ctx, c, q, limit, func(t client.Thread, raw json.RawMessage) error {
		switch {
		case !strings.Contains(t.ThreadID, o.part) && !strings.Contains(store.Folded(t.Title), store.Folded(o.part)):
		case o.sort != sortID:
			if all = append(all, listedThread{t, raw}); o.limit > 0 && len(all) >= 2*o.limit+1000 {
				all = o.first(all)
			}
		case o.limit == 0 || l.n < o.limit:
			return l.add(threadRow(out, t, raw))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, t := range o.first(all) {
		if err := l.add(threadRow(out, t.Thread, t.raw)); err != nil {
			return err
		}
	}
	return l.end()
}

// listedThread is a thread and its unchanged JSON.
type listedThread struct {
	client.Thread
	raw json.RawMessage
}

// first sorts threads by time and returns the first ones, up to the limit.
func (o *threadsOptions) first(list []listedThread) []listedThread {
	slices.SortStableFunc(list, func(a, b listedThread) int {
		latest := b.UpdatedAt.Compare(a.UpdatedAt)
		if o.sort == sortStarted {
			latest = b.StartedAt.Compare(a.StartedAt)
		}
		return cmp.Or(latest, cmp.Compare(a.ThreadID, b.ThreadID))
	})
	if o.limit > 0 && len(list) > o.limit {
		return slices.Clip(list[:o.limit])
	}
	return list
}

func threadRow(out *output, t client.Thread, raw json.RawMessage) listed {
	status := t.Status
	if t.OpenRuns > 0 && t.Status != string(record.StatusRunning) {
		status += fmt.Sprintf(" (%d running)", t.OpenRuns)
	}
	if t.Archived {
		status += " (archived)"
	}
	return listed{raw, []string{t.ThreadID}, []string{
		t.ThreadID, oneLine(t.Title, maxTitle), out.when(t.UpdatedAt), status, strconv.Itoa(t.Runs), strconv.Itoa(t.Branches),
		strconv.Itoa(t.Messages), out.when(t.StartedAt), t.LastRunID,
	}}
}
