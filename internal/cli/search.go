package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/client"
	"github.com/skeinhq/skein/pkg/search"
)

// conditions are the flags of a filter, each of the name of a parameter (docs/search.md).
type conditions struct {
	texts  map[string]*string
	labels []string
}

// conditionFlags adds the flags of a filter.
func conditionFlags(cmd *cobra.Command) *conditions {
	c := &conditions{texts: map[string]*string{}}
	for _, f := range []struct{ name, usage string }{
		{search.ParamSince, "only runs that started at or after `TIME`: RFC 3339, or how long ago, such as 90m, 24h, 7d or 2w"},
		{search.ParamUntil, "only runs that started before `TIME`, in the same forms"},
		{search.ParamStatus, "only runs of `STATUS`: running, finished, error, interrupted, cancelled or abandoned; several with commas between"},
		{search.ParamAgent, "only runs of the agent `NAME`"},
		{search.ParamUser, "only runs whose label user is `TEXT`"},
		{search.ParamTool, "only runs that called the tool `NAME`"},
		{search.ParamModel, "only runs that reported tokens of the model `NAME`"},
		{search.ParamError, "only runs that ended with an error of `CODE`; any stands for all"},
		{search.ParamRewrote, "only runs that ask again, as `KIND`: regeneration or edit"},
		{search.ParamPrefix, "only runs of threads whose id starts with `TEXT`"},
		{search.ParamWords, "only runs with a message that has all `WORDS`, whatever their case"},
	} {
		c.texts[f.name] = cmd.Flags().String(f.name, "", f.usage)
	}
	cmd.Flags().StringArrayVar(&c.labels, search.ParamLabel, nil, "only runs with the label `KEY=VALUE`, or KEY for any value; as often as wanted")
	return c
}

// values returns the parameters of a request.
func (c *conditions) values() url.Values {
	q := url.Values{}
	for name, text := range c.texts {
		set(q, name, *text)
	}
	for _, l := range c.labels {
		q.Add(search.ParamLabel, l)
	}
	return q
}

// flagError names the flag in place of the parameter.
func flagError(err error) error {
	var bad *search.ParameterError
	if errors.As(err, &bad) {
		return app.Usagef("--%w", err)
	}
	return err
}

// runsPageSize is how many runs one request asks for at most.
const runsPageSize = 1000

func newRuns(out *output, environ []string) *cobra.Command {
	at := server{environ: environ}
	var sort, order string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "runs",
		GroupID: groupRead,
		Short:   "Search the runs of all threads",
		Long: `Search the runs of all threads, the latest first. A run must meet all conditions.

With --json each run is a line.`,
		Example: `  skein runs --since 24h --error any
  skein runs --agent planner --label env=prod --sort duration --limit 10
  skein runs --rewrote regeneration --since 7d --json | jq -r .threadId`,
		Args: usageArgs(cobra.NoArgs),
	}
	of := conditionFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if limit < 0 {
			return app.Usagef("limit %d is negative", limit)
		}
		q := of.values()
		set(q, search.ParamSort, sort)
		set(q, search.ParamOrder, order)
		if _, err := search.ParseQuery(q, "", time.Now()); err != nil {
			return flagError(err)
		}
		return at.connect(func(c *client.Client) error {
			var list []search.Run
			more, err := eachRun(cmd.Context(), c, q, limit, func(raw json.RawMessage) error {
				if asJSON {
					return out.document(raw)
				}
				var r search.Run
				if err := json.Unmarshal(raw, &r); err != nil {
					return fmt.Errorf("decoding run: %w", err)
				}
				list = append(list, r)
				return nil
			})
			if err != nil {
				return err
			}
			if more {
				defer out.note("there are more runs; --limit 0 gives all")
			}
			switch {
			case asJSON:
				return nil
			case len(list) == 0:
				out.note("no runs")
				return nil
			}
			return printRuns(out, list)
		})
	}
	serverFlags(cmd, &at)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().StringVar(&sort, search.ParamSort, "", "order by `KEY`: started, duration or tokens (default started)")
	cmd.Flags().StringVar(&order, search.ParamOrder, "", "`DIRECTION`: desc or asc (default desc)")
	cmd.Flags().IntVar(&limit, search.ParamLimit, 50, "at most `N` runs; 0 is all")
	return cmd
}

// eachRun walks the pages of a search, at most limit runs where limit is not 0, and reports whether there are more.
func eachRun(ctx context.Context, c *client.Client, q url.Values, limit int, f func(json.RawMessage) error) (more bool, err error) {
	left := limit
	for {
		ask := runsPageSize
		if limit > 0 {
			ask = min(ask, left)
		}
		q.Set(search.ParamLimit, strconv.Itoa(ask))
		body, err := c.Get(ctx, "/v1/runs", q)
		if err != nil {
			return false, err
		}
		var page struct {
			Runs []json.RawMessage `json:"runs"`
			Next string            `json:"next"`
		}
		if err := json.Unmarshal(body, &page); err != nil {
			return false, fmt.Errorf("decoding runs: %w", err)
		}
		for _, raw := range page.Runs {
			if err := f(raw); err != nil {
				return false, err
			}
		}
		left -= len(page.Runs)
		if page.Next == "" || limit > 0 && left <= 0 {
			return page.Next != "", nil
		}
		q.Set(search.ParamAfter, page.Next)
	}
}

func printRuns(out *output, list []search.Run) error {
	w := tabwriter.NewWriter(out.stdout, 0, 0, 2, ' ', 0)
	// A tabwriter keeps errors until Flush.
	_, _ = fmt.Fprintln(w, "STARTED\tTHREAD\tRUN\tAGENT\tSTATUS\tDURATION\tTOKENS")
	room := max((out.width()-60)/2, 36)
	for _, r := range list {
		status, took := string(r.Status), "-"
		if r.ErrorCode != "" {
			status += " (" + oneLine(r.ErrorCode, 20) + ")"
		}
		if r.DurationMs != nil {
			took = (time.Duration(*r.DurationMs) * time.Millisecond).String()
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\n", r.StartedAt.UTC().Format(time.RFC3339), oneLine(r.ThreadID, room), oneLine(r.RunID, room),
			oneLine(r.Agent, 20), status, took, r.InputTokens+r.OutputTokens)
	}
	return w.Flush()
}

// statisticsAnswer is the answer of GET /v1/statistics.
type statisticsAnswer struct {
	By       []string `json:"by"`
	Measures []string `json:"measures"`
	Groups   []struct {
		By     map[string]string `json:"by"`
		Values map[string]*int64 `json:"values"`
	} `json:"groups"`
	Complete bool `json:"complete"`
}

func newStats(out *output, environ []string) *cobra.Command {
	at := server{environ: environ}
	var by, measure string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "stats",
		GroupID: groupRead,
		Short:   "Count and measure runs by group",
		Long: `Count and measure runs by group. A run must meet all conditions.

On a terminal a single measure is drawn as bars, too.`,
		Example: `  skein stats --by agent,week --measure runs,errors,durationP95
  skein stats --by agent --measure regenerations --since 30d
  skein stats --by label:env,tool --measure toolCalls,toolFailures --json`,
		Args: usageArgs(cobra.NoArgs),
	}
	of := conditionFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		q := of.values()
		set(q, search.ParamBy, by)
		set(q, search.ParamMeasure, measure)
		q.Set(search.ParamLimit, strconv.Itoa(limit))
		if _, err := search.ParseStatistics(q, time.Now()); err != nil {
			return flagError(err)
		}
		return at.connect(func(c *client.Client) error {
			body, err := c.Get(cmd.Context(), "/v1/statistics", q)
			if err != nil {
				return err
			}
			var a statisticsAnswer
			if err := json.Unmarshal(body, &a); err != nil {
				return fmt.Errorf("decoding statistics: %w", err)
			}
			if !a.Complete {
				defer out.note("there are more groups; --limit takes up to 10000, and conditions narrow them")
			}
			switch {
			case asJSON:
				return out.document(body)
			case len(a.Groups) == 0:
				out.note("no runs")
				return nil
			}
			bars := 0
			if isTerminal(out.stdout) {
				bars = out.width()
			}
			return printStatistics(out, a, bars)
		})
	}
	serverFlags(cmd, &at)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().StringVar(&by, search.ParamBy, "", "group by up to 3 `DIMENSIONS`, with commas between: agent, model, status, tool, hour, day, week, label:KEY")
	cmd.Flags().StringVar(&measure, search.ParamMeasure, string(search.Runs), "`MEASURES`, with commas between: "+measureNames())
	cmd.Flags().IntVar(&limit, search.ParamLimit, 1000, "at most `N` groups: those with the greatest first measure")
	return cmd
}

func measureNames() string {
	text := ""
	for i, m := range search.Measures {
		if i > 0 {
			text += ", "
		}
		text += string(m)
	}
	return text
}

// printStatistics writes a table; a single measure has bars where there is a screen of some width.
func printStatistics(out *output, a statisticsAnswer, width int) error {
	const keyWidth = 30
	head := append(slices.Clone(a.By), a.Measures...)
	rows := [][]string{}
	greatest := int64(0)
	for _, g := range a.Groups {
		var row []string
		for _, d := range a.By {
			row = append(row, oneLine(g.By[d], keyWidth))
			if row[len(row)-1] == "" {
				row[len(row)-1] = "-"
			}
		}
		for _, m := range a.Measures {
			text := "-"
			if v := g.Values[m]; v != nil {
				text, greatest = strconv.FormatInt(*v, 10), max(greatest, *v)
			}
			row = append(row, text)
		}
		rows = append(rows, row)
	}
	widths := make([]int, len(head))
	for _, row := range append([][]string{head}, rows...) {
		for i, text := range row {
			widths[i] = max(widths[i], len([]rune(text)))
		}
	}
	room := width
	for _, w := range widths {
		room -= w + 2
	}
	text := ""
	for i, row := range append([][]string{head}, rows...) {
		line := ""
		for j, cell := range row {
			if j > 0 {
				line += "  "
			}
			if j < len(a.By) { // words to the left, numbers to the right
				line += fmt.Sprintf("%-*s", widths[j], cell)
			} else {
				line += fmt.Sprintf("%*s", widths[j], cell)
			}
		}
		if i > 0 && len(a.Measures) == 1 && room >= 8 && greatest > 0 {
			if v := a.Groups[i-1].Values[a.Measures[0]]; v != nil {
				line += "  " + bar(*v, greatest, min(room, 60))
			}
		}
		text += line + "\n"
	}
	return out.text(text)
}

// bar draws a number in blocks of eighths, the greatest as wide as there is room.
func bar(v, greatest int64, room int) string {
	eighths := int(float64(max(v, 0)) / float64(greatest) * float64(room) * 8)
	if v > 0 {
		eighths = max(eighths, 1)
	}
	text := ""
	for range eighths / 8 {
		text += "█"
	}
	if rest := eighths % 8; rest > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return text
}
