package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"
	"unicode/utf8"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/store"
)

// selection is what templates need of a filter: which conditions it has, and the names of their parameters. Values are passed as the
// server's parameters, so no text of a filter becomes SQL.
type selection struct {
	Since, Until, Statuses, Agent, Tool, Model, Error, AnyError, Prefix, Depth bool
	Labels                                                                     []labelParams
	Words                                                                      []wordParam
	// AsksAgain selects regenerations, or edits if Regenerations is false. Rewrote selects runs by Run.Rewrote of the record.
	AsksAgain, Regenerations, Rewrote, Pending bool
	// Archived selects runs of archived threads, or with NotArchived those of others.
	Archived, NotArchived bool
	// ByThread searches in the order of threads, not of time.
	ByThread bool
	// Narrow means that the filter has conditions that make a subquery smaller.
	Narrow bool
}

type labelParams struct{ Key, Value string }

// wordParam has the parameters of a word: folded, and as it is searched in ids. Indexed means that the folded word has the four characters
// that a search by the index of words needs.
type wordParam struct {
	Param, InID string
	Indexed     bool
}

// selectionOf returns the selection of a filter, and the parameters of the statement.
func selectionOf(tenant string, f search.Filter) (selection, named) {
	args := named{"tenant": tenant}
	s := selection{
		Since: !f.Since.IsZero(), Until: !f.Until.IsZero(), Statuses: len(f.Statuses) > 0, Agent: f.Agent != "", Tool: f.Tool != "",
		Model: f.Model != "", Error: f.Error != "", AnyError: f.Error == search.ErrorAny,
		Prefix: f.Prefix != "", ByThread: f.Prefix != "", Depth: f.Depth != nil,
		AsksAgain: f.AsksAgain(), Regenerations: f.Rewrote == search.Regeneration, Rewrote: f.Rewrote != "" && !f.AsksAgain(),
		Pending: f.Pending, Archived: f.Archived != "", NotArchived: f.Archived == search.ArchivedNo,
	}
	s.Narrow = s.Since || s.Until || s.Statuses || s.Agent || s.Tool || s.Model || s.Error || s.Prefix || s.Depth || len(f.Labels) > 0
	for name, v := range map[string]any{
		"tool": f.Tool, "model": f.Model, "error": f.Error, "prefix": f.Prefix,
	} {
		if v != "" {
			args[name] = v
		}
	}
	if s.Agent {
		args["agent"] = f.AgentName()
	}
	if s.Rewrote {
		args["rewrote"] = f.Rewrote
	}
	if s.Since {
		args["since"] = f.Since.UnixMilli()
	}
	if s.Until {
		args["until"] = f.Until.UnixMilli()
	}
	if s.Statuses {
		var words []string
		for _, status := range f.Statuses {
			words = append(words, string(status))
		}
		args["statuses"] = words
	}
	if s.Depth {
		args["min_depth"], args["max_depth"] = f.Depth.Min, f.Depth.Max
	}
	for i, l := range f.Labels {
		p := labelParams{Key: fmt.Sprint("label_key_", i)}
		args[p.Key] = l.Key
		if !l.Any {
			p.Value = fmt.Sprint("label_value_", i)
			args[p.Value] = l.Value
		}
		s.Labels = append(s.Labels, p)
	}
	for i, w := range f.Words {
		p := wordParam{Param: fmt.Sprint("word_", i), InID: fmt.Sprint("id_word_", i)}
		args[p.Param], args[p.InID] = store.Folded(w), search.LowerID(w)
		p.Indexed = utf8.RuneCountInString(store.Folded(w)) >= 4
		s.Words = append(s.Words, p)
	}
	return s, args
}

// sortKeys are the expressions of search.Sort.
var sortKeys = map[search.Sort]string{
	search.SortStarted:  "toUnixTimestamp64Milli(started_at)",
	search.SortDuration: "ifNull(duration_ms, -1)",
	search.SortTokens:   "ifNull(total_tokens, -1)",
}

// searchView is the data of search.sql.
type searchView struct {
	selection
	Key, Direction   string
	After, Ascending bool
	// ByStart means that Key is the start time.
	ByStart bool
}

// Search implements store.Reader.
func (s *Store) Search(ctx context.Context, tenant string, q search.Query) (search.Page, error) {
	sel, args := selectionOf(tenant, q.Filter)
	view := searchView{selection: sel, Key: sortKeys[q.Sort], Direction: "DESC", After: q.After != nil, Ascending: q.Ascending,
		ByStart: q.Sort == search.SortStarted}
	if q.Ascending {
		view.Direction = "ASC"
	}
	args["limit"] = q.Limit + 1 // one more than the page, to see whether there is a next one
	if q.After != nil {
		args["key"], args["after_thread"], args["after_run"] = q.After.Key, q.After.ThreadID, q.After.RunID
	}
	for _, since := range windows(q, time.Now()) {
		view.Since = !since.IsZero()
		if view.Since {
			args["since"] = since.UnixMilli()
		}
		page, err := s.search(ctx, view, args, q)
		if err != nil {
			return search.Page{}, fmt.Errorf("searching runs: %w", err)
		}
		if page.Next != nil || since.Equal(q.Since) {
			return page, nil
		}
	}
	panic("unreachable: the last window is all of the search")
}

// windows returns the starts of ever larger windows in which Search looks for a page; the last is the query's own Since. The newest runs
// of a tenant mostly began in the last day, and runs_by_time reads little for one day. A full page from any window is the right one,
// because all runs outside the window come later in the order. Queries that read other tables have one window only, since each window
// reads those tables again.
func windows(q search.Query, now time.Time) []time.Time {
	const day = 24 * time.Hour
	if q.Sort != search.SortStarted || q.Ascending || q.Prefix != "" || q.Rewrote != "" || q.Pending || len(q.Words) > 0 {
		return []time.Time{q.Since}
	}
	top := now
	if !q.Until.IsZero() {
		top = q.Until
	}
	if q.After != nil {
		top = time.UnixMilli(q.After.Key)
	}
	var all []time.Time
	for _, back := range []time.Duration{day, 16 * day} {
		if t := top.Add(-back).UTC(); t.After(q.Since) && t.UnixMilli() > 0 {
			all = append(all, t)
		}
	}
	return append(all, q.Since)
}

func (s *Store) search(ctx context.Context, view searchView, args named, q search.Query) (search.Page, error) {
	page := search.Page{Runs: []search.Run{}}
	var last search.Position
	err := s.searching(ctx, selectSearch, view, args, q.Bounds, func(r row) error {
		if len(page.Runs) == q.Limit {
			page.Next = &last
			return nil
		}
		found, key, err := scanFound(ctx, r)
		page.Runs, last = append(page.Runs, found), search.Position{Key: key, ThreadID: found.ThreadID, RunID: found.RunID}
		return err
	})
	return page, err
}

// scanFound scans a row of search.sql: the run and its sort key.
func scanFound(ctx context.Context, r row) (search.Run, int64, error) {
	var thread, run, head string
	var key int64
	var firstToken *int64
	var interrupts uint32
	var labels map[string]string
	var tools map[string]int64
	var models []string
	var input, output []*int64 // in the order of models
	if err := r.Scan(&thread, &run, &head, &key, &labels, &firstToken, &models, &input, &output, &tools, &interrupts); err != nil {
		return search.Run{}, 0, err
	}
	if err := store.Metered(ctx, store.RowBytes, len(head)); err != nil {
		return search.Run{}, 0, err
	}
	decoded, err := store.DecodeHead([]byte(head))
	if err != nil {
		return search.Run{}, 0, err
	}
	for i, m := range models {
		u := record.TokenUsage{Model: agui.String(m), InputTokens: input[i], OutputTokens: output[i]}
		decoded.Run.Stats.Usage = append(decoded.Run.Stats.Usage, u)
	}
	out := store.Found(&decoded.Run, decoded.Facts)
	out.ThreadID, out.RunID = thread, run
	out.Labels, out.TimeToFirstTokenMs, out.ToolCalls, out.Interrupts = labels, firstToken, tools, int(interrupts)
	return out, key, nil
}

// dimensions are the expressions of search.Dimension. Times are milliseconds since 1970; Dimension.Bucket formats them.
var dimensions = map[search.Dimension]string{
	search.ByAgent:  "agent",
	search.ByStatus: "status",
	search.ByModel:  "arrayJoin(if(empty(models), [''], arrayDistinct(models)))",
	search.ByTool:   "arrayJoin(if(empty(tool_calls), [''], mapKeys(tool_calls)))",
	search.ByHour:   "toInt64(floor(toUnixTimestamp64Milli(started_at) / 3600000) * 3600000)",
	search.ByDay:    "toInt64(floor(toUnixTimestamp64Milli(started_at) / 86400000) * 86400000)",
	search.ByWeek:   "toInt64(floor((toUnixTimestamp64Milli(started_at) + 259200000) / 604800000) * 604800000 - 259200000)",
}

// measures are the expressions of search.Measure. With some dimensions, statisticsOf replaces them.
var measures = map[search.Measure]string{
	search.Runs:            "count()",
	search.Errors:          "countIf(status = 'error')",
	search.Regenerations:   "countIf(w.same > 1)",
	search.Edits:           "countIf(w.same = 1 AND w.place > 1)",
	search.Interrupts:      "sum(open_interrupts)",
	search.InputTokens:     "sum(input_tokens)",
	search.OutputTokens:    "sum(output_tokens)",
	search.Tokens:          "sum(total_tokens)",
	search.DurationP50:     "if(count(duration_ms) = 0, NULL, quantileExact(0.5)(duration_ms))",
	search.DurationP95:     "if(count(duration_ms) = 0, NULL, quantileExact(0.95)(duration_ms))",
	search.FirstTokenP50:   "if(count(time_to_first_token_ms) = 0, NULL, quantileExact(0.5)(time_to_first_token_ms))",
	search.ToolCalls:       "sum(tool_calls_sum)",
	search.ToolFailures:    "sum(f.failures)",
	search.ToolDurationP95: "if(sum(length(f.durations)) = 0, NULL, quantileExactArray(0.95)(f.durations))",
}

// statistics is the data of statistics.sql.
type statistics struct {
	Selection    selection
	By, Measures []string
	// Failures makes the statement join failed tool calls, Durations all tool calls, and Siblings the runs' order among their siblings.
	// ByTool is the column of the dimension tool, or "".
	Failures, Durations, Siblings bool
	ByTool                        string
}

// statisticsOf returns the data of the template, and adds parameters.
func statisticsOf(sel selection, q search.Statistics, args named) statistics {
	view := statistics{
		Selection: sel, Failures: slices.Contains(q.Measures, search.ToolFailures), Durations: slices.Contains(q.Measures,
			search.ToolDurationP95),
		Siblings: slices.Contains(q.Measures, search.Regenerations) || slices.Contains(q.Measures, search.Edits),
	}
	byModel := ""
	for i, d := range q.By {
		column := "d" + strconv.Itoa(i)
		expression := dimensions[d]
		switch key, is := d.Label(); {
		case is:
			name := "by_label_" + strconv.Itoa(i)
			args[name], expression = key, "labels[{"+name+":String}]"
		case d == search.ByTool:
			view.ByTool = column
		case d == search.ByModel:
			byModel = column
		}
		view.By = append(view.By, expression)
	}
	ofModel := map[search.Measure]string{search.InputTokens: "i", search.OutputTokens: "o", search.Tokens: "i + o"}
	for _, m := range q.Measures {
		expression := measures[m]
		switch {
		case m == search.ToolCalls && view.ByTool != "":
			expression = "sum(tool_calls[" + view.ByTool + "])"
		case byModel != "" && ofModel[m] != "":
			expression = "sumOrNullArray(arrayMap((m, i, o) -> if(m = " + byModel + ", " + ofModel[m] +
				", NULL), models, model_input_tokens, model_output_tokens))"
		}
		view.Measures = append(view.Measures, expression)
	}
	return view
}

// Statistics implements store.Reader.
func (s *Store) Statistics(ctx context.Context, tenant string, q search.Statistics) (search.Table, error) {
	sel, args := selectionOf(tenant, q.Filter)
	view := statisticsOf(sel, q, args)
	args["limit"] = q.Limit + 1 // one more than asked for, to see whether there are more
	table := search.Table{Groups: []search.Group{}}
	err := s.searching(ctx, selectStatistics, view, args, q.Bounds, func(r row) error {
		var g search.Group
		if err := r.Scan(&g.Keys, &g.Values); err != nil {
			return err
		}
		for i, d := range q.By {
			if !d.Time() {
				continue
			}
			ms, err := strconv.ParseInt(g.Keys[i], 10, 64)
			if err != nil {
				return fmt.Errorf("reading time of a group: %w", err)
			}
			g.Keys[i] = d.Bucket(time.UnixMilli(ms))
		}
		table.Groups = append(table.Groups, g)
		return store.Metered(ctx, store.MessageBytes, 16*len(g.Values)+len(strings.Join(g.Keys, "")))
	})
	if err != nil {
		return search.Table{}, fmt.Errorf("measuring runs: %w", err)
	}
	table.Cut(q.Limit)
	return table, nil
}

// tooMuch are the server's error codes of a statement that exceeds its bounds: TOO_MANY_ROWS, TIMEOUT_EXCEEDED, TOO_SLOW, TOO_MANY_BYTES,
// TOO_MANY_ROWS_OR_BYTES (ClickHouse, src/Common/ErrorCodes.cpp).
var tooMuch = []int32{158, 159, 160, 307, 396}

// maxSearchGroups bounds the groups in the server's memory for one statement.
const maxSearchGroups = 1_000_000

// searching runs the statement of a template within bounds.
func (s *Store) searching(ctx context.Context, t *template.Template, view any, args named, b search.Bounds, f func(row) error) error {
	var text strings.Builder
	if err := t.Execute(&text, view); err != nil {
		return fmt.Errorf("building statement: %w", err)
	}
	err := s.query(ctx, b.Time, ch.Settings{
		"max_rows_to_read": b.Rows, "read_overflow_mode": "throw",
		"max_rows_to_group_by": maxSearchGroups, "group_by_overflow_mode": "throw",
	}, text.String(), args, f)
	var ex *ch.Exception
	if errors.As(err, &ex) && slices.Contains(tooMuch, ex.Code) {
		return fmt.Errorf("%w: %w", search.ErrTooMuch, err)
	}
	return err
}

// lookup parses the templates of a statement.
func lookup(texts ...string) *template.Template {
	t := template.New("")
	for _, text := range texts {
		t = template.Must(t.Parse(text))
	}
	return t
}
