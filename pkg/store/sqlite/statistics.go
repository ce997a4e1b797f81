package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/store"
)

// selectCalls selects tool calls in the order by which ClickHouse's v_tool_calls finds the first call of an id.
const selectCalls = `SELECT c.thread_id, c.tool_call_id, c.run_id, c.name, c.made, c.failed, c.duration_ms FROM tool_calls c
JOIN runs r ON r.tenant = c.tenant AND r.thread_id = c.thread_id AND r.run_id = c.run_id AND r.version = c.version
WHERE c.tenant = :tenant AND r.deleted = 0 AND r.status <> 'running'
AND (:all OR (c.thread_id, c.tool_call_id) IN (SELECT thread_id, tool_call_id FROM tool_calls WHERE tenant = :tenant AND failed = 1))
ORDER BY c.started_at, c.run_id, c.idx`

// runKey identifies a run of a tenant.
type runKey struct{ thread, run string }

// toolCalls summarises the calls of one tool by one run.
type toolCalls struct {
	failed    int64
	durations []int64 // of calls with a result in the same run
}

// callsOf returns tool calls for statistics, by run and tool: all of them, or only failed ones. A call counts once, for the run that
// made it first; its result may be in a later run.
func (s *Store) callsOf(ctx context.Context, tenant string, all bool) (map[runKey]map[string]toolCalls, error) {
	type key struct{ thread, id string }
	type call struct {
		by           runKey
		tool         string
		made, failed bool
		duration     *int64
	}
	calls := map[key]*call{}
	err := each(ctx, s.read, selectCalls, []any{sql.Named("tenant", tenant), sql.Named("all", all)}, func(scan func(...any) error) error {
		var k key
		var c call
		if err := scan(&k.thread, &k.id, &c.by.run, &c.tool, &c.made, &c.failed, &c.duration); err != nil {
			return err
		}
		c.by.thread = k.thread
		before := calls[k]
		if before == nil {
			calls[k] = &c
			return store.Metered(ctx, store.MessageBytes, len(k.thread)+len(k.id)+len(c.by.run)+len(c.tool))
		}
		failed := before.failed || c.failed
		if c.made && !before.made {
			*before = c
		}
		before.failed = failed
		return nil
	})
	by := map[runKey]map[string]toolCalls{}
	for _, c := range calls {
		if !c.made {
			continue
		}
		if by[c.by] == nil {
			by[c.by] = map[string]toolCalls{}
		}
		of := by[c.by][c.tool]
		if c.failed {
			of.failed++
		}
		if c.duration != nil {
			of.durations = append(of.durations, *c.duration)
		}
		by[c.by][c.tool] = of
	}
	return by, err
}

// tally has the counts of a group.
type tally struct {
	keys   []string
	counts map[search.Measure]int64
	tokens map[search.Measure]*int64 // nil if none were reported
	// durations, firstTokens and toolDurations are the values for percentiles.
	durations, firstTokens, toolDurations []int64
}

func newTally(keys []string) *tally {
	return &tally{keys: keys, counts: map[search.Measure]int64{}, tokens: map[search.Measure]*int64{}}
}

// Statistics implements store.Reader. It reads the tenant's runs and counts in Go.
func (s *Store) Statistics(ctx context.Context, tenant string, q search.Statistics) (search.Table, error) {
	groups := map[string]*tally{}
	if len(q.By) == 0 {
		groups[""] = newTally([]string{})
	}
	err := bounded(ctx, q.Bounds, func(within context.Context) error {
		calls := map[runKey]map[string]toolCalls{}
		durations := slices.Contains(q.Measures, search.ToolDurationP95)
		if durations || slices.Contains(q.Measures, search.ToolFailures) {
			var err error
			if calls, err = s.callsOf(within, tenant, durations); err != nil {
				return err
			}
		}
		return s.scan(within, tenant, q.Filter, q.Rows, selectFound, search.Position{}, func(r found) error {
			for _, keys := range keysOf(q.By, &r) {
				name := strings.Join(keys, "\xff") // a byte that no text has
				t := groups[name]
				if t == nil {
					if err := store.Metered(ctx, store.RowBytes, len(name)); err != nil {
						return err
					}
					t = newTally(keys)
					groups[name] = t
				}
				if err := store.Metered(ctx, 16, 0); err != nil { // values for two percentiles
					return err
				}
				if err := t.add(within, q.By, &r, calls[runKey{r.ThreadID, r.RunID}]); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return search.Table{}, fmt.Errorf("measuring runs: %w", err)
	}
	table := search.Table{Groups: []search.Group{}}
	for _, t := range groups {
		table.Groups = append(table.Groups, t.group(q.Measures))
	}
	table.Cut(q.Limit)
	return table, nil
}

// keysOf returns the keys of the groups of a run.
func keysOf(by []search.Dimension, r *found) [][]string {
	all := [][]string{{}}
	for _, d := range by {
		var values []string
		key, label := d.Label()
		switch {
		case label:
			values = []string{r.Labels[key]}
		case d == search.ByAgent:
			values = []string{r.Agent}
		case d == search.ByStatus:
			values = []string{string(r.Status)}
		case d == search.ByModel:
			values = r.Models
		case d == search.ByTool:
			values = slices.Collect(maps.Keys(r.ToolCalls))
		default:
			values = []string{d.Bucket(r.StartedAt)}
		}
		if len(values) == 0 {
			values = []string{""}
		}
		var longer [][]string
		for _, keys := range all {
			for _, v := range values {
				longer = append(longer, append(slices.Clone(keys), v))
			}
		}
		all = longer
	}
	return all
}

// add counts a run. The argument ended has the run's tool calls, by tool.
func (t *tally) add(ctx context.Context, by []search.Dimension, r *found, ended map[string]toolCalls) error {
	usage, calls := r.usage, r.ToolCalls
	for i, d := range by {
		switch d {
		case search.ByModel:
			usage = slices.DeleteFunc(slices.Clone(usage), func(u record.TokenUsage) bool { return string(u.Model) != t.keys[i] })
		case search.ByTool:
			calls = map[string]int64{t.keys[i]: r.ToolCalls[t.keys[i]]}
			ended = map[string]toolCalls{t.keys[i]: ended[t.keys[i]]}
		}
	}
	t.counts[search.Runs]++
	if r.Status == record.StatusError {
		t.counts[search.Errors]++
	}
	switch r.rewrote {
	case search.Regeneration:
		t.counts[search.Regenerations]++
	case search.Edit:
		t.counts[search.Edits]++
	}
	t.counts[search.Interrupts] += int64(r.Interrupts)
	for _, u := range usage {
		t.tokens[search.InputTokens] = record.AddTokens(t.tokens[search.InputTokens], u.InputTokens)
		t.tokens[search.OutputTokens] = record.AddTokens(t.tokens[search.OutputTokens], u.OutputTokens)
		t.tokens[search.Tokens] = record.AddTokens(t.tokens[search.Tokens], u.Total())
	}
	for _, n := range calls {
		t.counts[search.ToolCalls] += n
	}
	for _, c := range ended {
		t.counts[search.ToolFailures] += c.failed
		t.toolDurations = append(t.toolDurations, c.durations...)
		if err := store.Metered(ctx, 8*len(c.durations), 0); err != nil {
			return err
		}
	}
	if r.DurationMs != nil {
		t.durations = append(t.durations, *r.DurationMs)
	}
	if r.TimeToFirstTokenMs != nil {
		t.firstTokens = append(t.firstTokens, *r.TimeToFirstTokenMs)
	}
	return nil
}

// group returns the measures of a group.
func (t *tally) group(measures []search.Measure) search.Group {
	slices.Sort(t.durations)
	slices.Sort(t.firstTokens)
	slices.Sort(t.toolDurations)
	g := search.Group{Keys: t.keys}
	for _, m := range measures {
		switch m {
		case search.DurationP50:
			g.Values = append(g.Values, search.Quantile(t.durations, 0.5))
		case search.DurationP95:
			g.Values = append(g.Values, search.Quantile(t.durations, 0.95))
		case search.FirstTokenP50:
			g.Values = append(g.Values, search.Quantile(t.firstTokens, 0.5))
		case search.ToolDurationP95:
			g.Values = append(g.Values, search.Quantile(t.toolDurations, 0.95))
		case search.InputTokens, search.OutputTokens, search.Tokens:
			g.Values = append(g.Values, t.tokens[m])
		default:
			n := t.counts[m]
			g.Values = append(g.Values, &n)
		}
	}
	return g
}
