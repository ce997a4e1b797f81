package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/search"
)

// conditions has the flags of a filter. Each flag has the name of an API parameter (docs/search.md).
type conditions struct {
	texts  []string // the names of the flags that take one text
	labels []string
	// pending selects runs that ended with tool calls without a result.
	pending bool
}

// conditionFlags adds the flags of a filter.
func conditionFlags(cmd *cobra.Command) *conditions {
	c := &conditions{}
	for _, f := range []struct{ name, usage string }{
		{search.ParamSince, "only runs that started at or after `TIME`: RFC 3339, or how long ago, such as 90m, 24h, 7d or 2w"},
		{search.ParamUntil, "only runs that started before `TIME`, in the same forms"},
		{search.ParamStatus, "only runs of `STATUS`: running, finished, error, interrupted, cancelled or abandoned; several separated by commas"},
		{search.ParamAgent, "only runs of the agent `NAME`; none is those without one"},
		{search.ParamUser, "only runs whose label user is `TEXT`"},
		{search.ParamTool, "only runs that called the tool `NAME`"},
		{search.ParamModel, "only runs that reported tokens of the model `NAME`"},
		{search.ParamError, "only runs that ended with an error of `CODE`; any is all codes"},
		{search.ParamRewrote, "only runs that ask again, or whose input departs from the parent's history, as `KIND`: " +
			strings.Join(search.Rewrotes, ", ")},
		{search.ParamDepth, "only runs so many runs from their root: `N` or FROM:TO"},
		{search.ParamPrefix, "only runs of threads whose id starts with `TEXT`"},
		{search.ParamWords, "only runs with a message, error, title of the thread or id that has all `WORDS`, ignoring case"},
		{search.ParamArchived, "only runs of `WHICH` threads: no (not archived), yes (archived) or all, the default"},
	} {
		c.texts = append(c.texts, f.name)
		cmd.Flags().String(f.name, "", f.usage)
	}
	cmd.Flags().BoolVar(&c.pending, search.ParamPending, false, "only runs that ended with tool calls without a result")
	cmd.Flags().StringArrayVar(&c.labels, search.ParamLabel, nil, "only runs with the label `KEY=VALUE`, or KEY for any value (repeatable)")
	return c
}

// values returns the parameters of a request. It refuses an empty condition, such as one from an unset variable of a script,
// since that would select everything.
func (c *conditions) values(cmd *cobra.Command) (url.Values, error) {
	q := url.Values{}
	empty := ""
	for _, name := range c.texts {
		f := cmd.Flags().Lookup(name)
		if f.Changed && f.Value.String() == "" {
			empty = name
		}
		set(q, name, f.Value.String())
	}
	if c.pending {
		q.Set(search.ParamPending, "true")
	}
	for _, l := range c.labels {
		if l == "" {
			empty = search.ParamLabel
		}
		q.Add(search.ParamLabel, l)
	}
	if empty != "" {
		return nil, app.Usagef("--%s is empty: leave it out to select all", empty)
	}
	return q, nil
}

// flagError makes the error name the flag instead of the parameter.
func flagError(err error) error {
	var bad *search.ParameterError
	if errors.As(err, &bad) {
		return app.Usagef("--%w", err)
	}
	return err
}

func newRuns(out *output) *cobra.Command {
	var sort, order string
	var limit int
	cmd := &cobra.Command{
		Use:     "runs",
		GroupID: groupRead,
		Short:   "Search the runs of all threads",
		Long: `Search the runs of all threads, latest first. A run must meet all conditions.

On a terminal, ids are whole and columns that do not fit are left out; -o wide prints all of them. Elsewhere the columns are
separated by tabs.`,
		Example: `  skein runs --since 24h --error any
  skein runs --agent planner --label env=prod --sort duration --limit 10
  skein runs --rewrote regeneration --since 7d --json | jq -r .threadId`,
		Args: usageArgs(cobra.NoArgs),
	}
	of := conditionFlags(cmd)
	onServer(cmd, out, func(ctx context.Context, c *client.Client, _ []string) error {
		if limit < 0 {
			return app.Usagef("limit %d is negative", limit)
		}
		q, err := of.values(cmd)
		if err != nil {
			return err
		}
		set(q, search.ParamSort, sort)
		set(q, search.ParamOrder, order)
		if _, err := search.ParseQuery(q, "", time.Now()); err != nil {
			return flagError(err)
		}
		l := lister{out: out, none: "no runs", columns: []column{
			{name: "THREAD", keep: true}, {name: "RUN", keep: true}, {name: "STARTED"}, {name: "STATUS"}, {name: "DURATION", right: true},
			{name: "AGENT"}, {name: "TOKENS", right: true}, {name: "ERROR", wide: true},
		}}
		more, err := each(ctx, c, "/v1/runs", "runs", q, limit, func(r client.Run, raw json.RawMessage) error {
			return l.add(listed{raw, []string{r.ThreadID, r.RunID}, runRow(out, r)})
		})
		if err != nil {
			return err
		}
		if more {
			defer out.note("there are more runs; --limit 0 prints all")
		}
		return l.end()
	})
	listFlags(cmd, out)
	cmd.Flags().StringVar(&sort, search.ParamSort, "", "order by `KEY`: started, duration or tokens (default started)")
	cmd.Flags().StringVar(&order, search.ParamOrder, "", "`DIRECTION`: desc or asc (default desc)")
	cmd.Flags().IntVar(&limit, search.ParamLimit, 50, "at most `N` runs; 0 is all")
	return cmd
}

func runRow(out *output, r client.Run) []string {
	took := "-"
	if r.DurationMs != nil {
		took = (time.Duration(*r.DurationMs) * time.Millisecond).String()
	}
	return []string{
		r.ThreadID, r.RunID, out.when(r.StartedAt), string(r.Status), took, orDash(r.Agent),
		countOrDash(r.Tokens), orDash(r.ErrorCode),
	}
}

func countOrDash(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}

// statisticsAnswer is the answer of GET /v1/statistics.
type statisticsAnswer struct {
	By, Measures []string
	Groups       []struct {
		By     map[string]string
		Values map[string]*int64
	}
	Complete bool
}

func newStats(out *output) *cobra.Command {
	var by, measure string
	var limit int
	cmd := &cobra.Command{
		Use:     "stats",
		GroupID: groupRead,
		Short:   "Count and measure runs by group",
		Long: `Count and measure runs by group. A run must meet all conditions.

On a terminal a single measure is drawn as bars, too. Elsewhere the columns are separated by tabs.`,
		Example: `  skein stats --by agent,week --measure runs,errors,durationP95
  skein stats --by agent --measure regenerations --since 30d
  skein stats --by label:env,tool --measure toolCalls,toolFailures --json`,
		Args: usageArgs(cobra.NoArgs),
	}
	of := conditionFlags(cmd)
	onServer(cmd, out, func(ctx context.Context, c *client.Client, _ []string) error {
		q, err := of.values(cmd)
		if err != nil {
			return err
		}
		set(q, search.ParamBy, by)
		set(q, search.ParamMeasure, measure)
		q.Set(search.ParamLimit, strconv.Itoa(limit))
		if _, err := search.ParseStatistics(q, time.Now()); err != nil {
			return flagError(err)
		}
		var a statisticsAnswer
		body, err := c.Fetch(ctx, "/v1/statistics", q, &a)
		if err != nil {
			return err
		}
		if !a.Complete {
			defer out.note("there are more groups; raise --limit (up to 10000) or narrow the conditions")
		}
		switch {
		case out.form == formJSON:
			return out.document(body)
		case out.form == formJSONL:
			return out.lines(body, "groups")
		case len(a.Groups) == 0:
			out.note("no runs")
			return nil
		}
		return printStatistics(out, a, out.drawingWidth())
	})
	formFlags(cmd, out, "`FORM` of the output: table, json (the API's answer) or jsonl (a line for each group)", formJSON,
		formTable, formJSON, formJSONL)
	cmd.Flags().StringVar(&by, search.ParamBy, "",
		"group by up to 3 `DIMENSIONS`, separated by commas: agent, model, status, tool, hour, day, week, label:KEY")
	cmd.Flags().StringVar(&measure, search.ParamMeasure, string(search.Runs), "`MEASURES`, separated by commas: "+strings.Join(texts(search.Measures), ", "))
	cmd.Flags().IntVar(&limit, search.ParamLimit, 1000, "at most `N` groups: those with the greatest first measure")
	return cmd
}

// printStatistics prints a table that fits a terminal of the given width; 0 means no terminal. On a terminal a single measure also gets
// bars.
func printStatistics(out *output, a statisticsAnswer, width int) error {
	var columns []column
	for _, d := range a.By {
		columns = append(columns, column{name: d, keep: true})
	}
	for _, m := range a.Measures {
		columns = append(columns, column{name: m, keep: true, right: true})
	}
	rows, greatest := make([][]string, len(a.Groups)), int64(0)
	for i, g := range a.Groups {
		for _, d := range a.By {
			rows[i] = append(rows[i], orDash(g.By[d]))
		}
		for _, m := range a.Measures {
			if v := g.Values[m]; v != nil {
				greatest = max(greatest, *v)
			}
			rows[i] = append(rows[i], countOrDash(g.Values[m]))
		}
	}
	if width > 0 && len(a.Measures) == 1 && greatest > 0 {
		columns = append(columns, column{}) // left out if it does not fit
		for i, g := range a.Groups {
			text := ""
			if v := g.Values[a.Measures[0]]; v != nil {
				text = bar(*v, greatest)
			}
			rows[i] = append(rows[i], text)
		}
	}
	return out.text(table(columns, rows, width, false))
}

// bar draws a number as a bar. The bar of greatest has 30 characters.
func bar(v, greatest int64) string {
	const most = 30
	n := int(float64(max(v, 0)) / float64(greatest) * most)
	if v > 0 {
		n = max(n, 1)
	}
	return strings.Repeat("█", n)
}
