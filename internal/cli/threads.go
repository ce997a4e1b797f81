package cli

import (
	"bytes"
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
	"github.com/skeinhq/skein/internal/client"
	"github.com/skeinhq/skein/pkg/record"
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

// The orders of skein threads.
const (
	sortUpdated = "updated"
	sortStarted = "started"
	sortID      = "id"
)

type threadsOptions struct {
	prefix, status, agent string
	part, since, sort     string
	limit                 int
	list                  string
	watch                 bool
}

// listedThread is a thread as the API gave it, and what the list needs of it.
type listedThread struct {
	store.Thread
	raw json.RawMessage
}

func newThreads(out *output, environ []string) *cobra.Command {
	at := server{environ: environ}
	var o threadsOptions
	cmd := &cobra.Command{
		Use:     "threads [TEXT]",
		GroupID: groupRead,
		Short:   "List threads, most recently changed first",
		Long: `List threads, most recently changed first. With TEXT, only threads whose id contains it.

On a terminal, ids are never cut, and columns that do not fit are left out; -o wide prints all columns. Elsewhere the
list is tab-separated, without a header, with times in UTC: id, last change, status, runs, branches, messages.
Except with --sort id, the command reads the whole list before it prints anything.`,
		Example: `  skein threads
  skein threads order-17 --since 24h
  skein threads --status interrupted -o name`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.part = args[0]
			}
			q, err := o.query(out.now())
			if err != nil {
				return err
			}
			return at.connect(func(c *client.Client) error {
				if !o.watch {
					return listThreads(cmd.Context(), out, c, q, o)
				}
				return out.watch(cmd.Context(), func(ctx context.Context, out *output) error {
					return listThreads(ctx, out, c, q, o)
				})
			})
		},
	}
	serverFlags(cmd, &at)
	listFlags(cmd, &o.list)
	watchFlag(cmd, &o.watch)
	cmd.Flags().StringVar(&o.prefix, "prefix", "", "only threads whose id starts with `TEXT`")
	choiceFlag(cmd, &o.status, "status", "", "", "only threads whose last run is `STATUS`: "+orList(runStatuses), runStatuses...)
	cmd.Flags().StringVar(&o.agent, "agent", "", "only threads with a run of the agent `NAME`")
	cmd.Flags().StringVar(&o.since, "since", "", "only threads that changed since `TIME`: 2026-09-17T12:00:00Z, or how long ago, such as 90m or 24h")
	choiceFlag(cmd, &o.sort, "sort", "", sortUpdated, "`ORDER` of the list: updated or started (latest first) or id", sortUpdated, sortStarted, sortID)
	cmd.Flags().IntVar(&o.limit, "limit", 0, "at most `N` threads; 0 is all")
	return cmd
}

var runStatuses = []string{
	string(record.StatusRunning), string(record.StatusFinished), string(record.StatusError),
	string(record.StatusInterrupted), string(record.StatusCancelled), string(record.StatusAbandoned),
}

// query checks the options and returns what the API is asked for.
func (o *threadsOptions) query(now time.Time) (url.Values, error) {
	if o.limit < 0 {
		return nil, app.Usagef("limit %d is negative", o.limit)
	}
	q := url.Values{}
	set(q, "prefix", o.prefix)
	set(q, "status", o.status)
	set(q, "agent", o.agent)
	if o.since != "" {
		since, err := sinceTime(o.since, now)
		if err != nil {
			return nil, err
		}
		q.Set("since", since.UTC().Format(time.RFC3339Nano))
	}
	return q, nil
}

// sinceTime reads a time, or how long ago it was.
func sinceTime(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, app.Usagef("since %q is neither a time such as 2026-09-17T12:00:00Z nor a duration such as 90m or 24h", text)
	}
	return t, nil
}

func listThreads(ctx context.Context, out *output, c *client.Client, q url.Values, o threadsOptions) error {
	list, err := o.read(ctx, c, q, func(raw json.RawMessage) error { return out.document(raw) })
	if err != nil || list == nil {
		return err
	}
	switch o.list {
	case formJSON:
		raws := make([]json.RawMessage, len(list))
		for i, t := range list {
			raws[i] = t.raw
		}
		return out.json(raws)
	case formJSONL, formName:
		var b strings.Builder
		for _, t := range list {
			if o.list == formName {
				b.WriteString(field(t.ThreadID) + "\n")
			} else {
				b.Write(append(bytes.TrimSpace(t.raw), '\n'))
			}
		}
		return out.text(b.String())
	}
	if len(list) == 0 {
		out.note("no threads")
		return nil
	}
	return out.text(threadTable(out, list, o.list == formWide))
}

// read returns the threads in their order. Lines of JSON by id go to line as they come, and then the list is nil.
func (o *threadsOptions) read(ctx context.Context, c *client.Client, q url.Values, line func(json.RawMessage) error) ([]listedThread, error) {
	list := []listedThread{}
	streams, n := o.list == formJSONL && o.sort == sortID, 0
	limit := o.limit
	if o.part != "" || o.sort != sortID {
		limit = 0 // which of them are wanted shows at the end
	}
	err := eachThread(ctx, c, q, limit, func(raw json.RawMessage) error {
		var t store.Thread
		if err := json.Unmarshal(raw, &t); err != nil {
			return fmt.Errorf("decoding thread: %w", err)
		}
		if !strings.Contains(t.ThreadID, o.part) || o.sort == sortID && o.limit > 0 && n == o.limit {
			return nil
		}
		n++
		if streams {
			return line(raw)
		}
		list = append(list, listedThread{t, raw})
		if o.limit > 0 && len(list) >= 2*o.limit+1000 {
			list = o.first(list)
		}
		return nil
	})
	if err != nil || streams {
		return nil, err
	}
	return o.first(list), nil
}

// first sorts threads, and returns as many as are wanted.
func (o *threadsOptions) first(list []listedThread) []listedThread {
	slices.SortStableFunc(list, func(a, b listedThread) int {
		switch o.sort {
		case sortUpdated:
			return cmp.Or(b.UpdatedAt.Compare(a.UpdatedAt), cmp.Compare(a.ThreadID, b.ThreadID))
		case sortStarted:
			return cmp.Or(b.StartedAt.Compare(a.StartedAt), cmp.Compare(a.ThreadID, b.ThreadID))
		default:
			return cmp.Compare(a.ThreadID, b.ThreadID)
		}
	})
	if o.limit > 0 && len(list) > o.limit {
		return slices.Clip(list[:o.limit])
	}
	return list
}

// eachThread walks all pages of threads, at most limit threads where limit is not 0.
func eachThread(ctx context.Context, c *client.Client, q url.Values, limit int, f func(json.RawMessage) error) error {
	const pageSize = 1000
	q.Set("limit", strconv.Itoa(pageSize))
	if limit > 0 && limit < pageSize {
		q.Set("limit", strconv.Itoa(limit))
	}
	q.Del("after")
	n := 0
	for {
		body, err := c.Get(ctx, "/v1/threads", q)
		if err != nil {
			return err
		}
		var page threadsPage
		if err := json.Unmarshal(body, &page); err != nil {
			return fmt.Errorf("decoding threads: %w", err)
		}
		for _, raw := range page.Threads {
			if err := f(raw); err != nil {
				return err
			}
			if n++; n == limit {
				return nil
			}
		}
		if page.Next == "" {
			return nil
		}
		q.Set("after", page.Next)
	}
}

// threadTable draws the list for where it goes to.
func threadTable(out *output, list []listedThread, wide bool) string {
	columns := []column{
		{name: "THREAD", keep: true}, {name: "UPDATED"}, {name: "STATUS"}, {name: "RUNS", right: true}, {name: "BRANCHES", right: true},
		{name: "MESSAGES", right: true}, {name: "STARTED", wide: true}, {name: "LAST RUN", wide: true},
	}
	rows := make([][]string, len(list))
	for i, t := range list {
		status := t.Status
		if t.OpenRuns > 0 && t.Status != string(record.StatusRunning) {
			status += fmt.Sprintf(" (%d running)", t.OpenRuns)
		}
		rows[i] = []string{
			t.ThreadID, out.when(t.UpdatedAt), status, strconv.Itoa(t.Runs), strconv.Itoa(t.Branches), strconv.Itoa(t.Messages),
			out.when(t.StartedAt), t.LastRunID,
		}
	}
	return table(columns, rows, out.drawingWidth(), wide)
}

func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}
