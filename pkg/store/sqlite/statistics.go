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

// selectFailedCalls gives what there is of tool calls that failed, in the order in which v_tool_calls of ClickHouse looks for the first.
const selectFailedCalls = `SELECT c.thread_id, c.tool_call_id, c.run_id, c.name, c.made FROM tool_calls c
JOIN runs r ON r.tenant = c.tenant AND r.thread_id = c.thread_id AND r.run_id = c.run_id AND r.version = c.version
WHERE c.tenant = :tenant AND r.deleted = 0 AND r.status <> 'running' AND (c.thread_id, c.tool_call_id) IN (
    SELECT f.thread_id, f.tool_call_id FROM tool_calls f
    JOIN runs g ON g.tenant = f.tenant AND g.thread_id = f.thread_id AND g.run_id = f.run_id AND g.version = f.version
    WHERE f.tenant = :tenant AND f.failed = 1 AND g.deleted = 0 AND g.status <> 'running')
ORDER BY c.started_at, c.run_id, c.idx`

// runKey names a run of a tenant.
type runKey struct{ thread, run string }

// failedCalls counts failed calls by the run that made them and by tool.
func (s *Store) failedCalls(ctx context.Context, tenant string) (map[runKey]map[string]int64, error) {
	type call struct{ thread, id string }
	seen, failed := map[call]bool{}, map[runKey]map[string]int64{}
	err := each(ctx, s.read, selectFailedCalls, []any{sql.Named("tenant", tenant)}, func(scan func(...any) error) error {
		var c call
		var run, name string
		var made bool
		if err := scan(&c.thread, &c.id, &run, &name, &made); err != nil {
			return err
		}
		if !made || seen[c] {
			return nil
		}
		seen[c] = true
		k := runKey{c.thread, run}
		if failed[k] == nil {
			failed[k] = map[string]int64{}
		}
		failed[k][name]++
		return store.Metered(ctx, store.MessageBytes, len(c.thread)+len(c.id)+len(run)+len(name))
	})
	return failed, err
}

// tally is what was counted of a group.
type tally struct {
	keys   []string
	counts map[search.Measure]int64
	// durations and firstTokens are the values of percentiles.
	durations, firstTokens []int64
}

// Statistics implements store.Reader. It walks the tenant's runs and counts in Go.
func (s *Store) Statistics(ctx context.Context, tenant string, q search.Statistics) (search.Table, error) {
	groups := map[string]*tally{}
	if len(q.By) == 0 {
		groups[""] = &tally{keys: []string{}, counts: map[search.Measure]int64{}}
	}
	err := bounded(ctx, q.Bounds, func(within context.Context) error {
		failed := map[runKey]map[string]int64{}
		if slices.Contains(q.Measures, search.ToolFailures) {
			var err error
			if failed, err = s.failedCalls(within, tenant); err != nil {
				return err
			}
		}
		return s.scan(within, tenant, q.Filter, q.Rows, selectFound, search.Position{}, func(r found) error {
			for _, keys := range keysOf(q.By, &r) {
				name := strings.Join(keys, "\xff") // in no text
				t := groups[name]
				if t == nil {
					if err := store.Metered(ctx, store.RowBytes, len(name)); err != nil {
						return err
					}
					t = &tally{keys: keys, counts: map[search.Measure]int64{}}
					groups[name] = t
				}
				if err := store.Metered(ctx, 16, 0); err != nil { // of two percentiles
					return err
				}
				t.add(q.By, &r, failed[runKey{r.ThreadID, r.RunID}])
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

// keysOf lists the groups that a run is in.
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

// add counts a run in the group.
func (t *tally) add(by []search.Dimension, r *found, failed map[string]int64) {
	usage, calls := r.usage, r.ToolCalls
	for i, d := range by {
		switch d {
		case search.ByModel:
			usage = map[string]record.TokenUsage{t.keys[i]: r.usage[t.keys[i]]}
		case search.ByTool:
			calls = map[string]int64{t.keys[i]: r.ToolCalls[t.keys[i]]}
			failed = map[string]int64{t.keys[i]: failed[t.keys[i]]}
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
		t.counts[search.InputTokens] += u.InputTokens
		t.counts[search.OutputTokens] += u.OutputTokens
		t.counts[search.Tokens] += u.InputTokens + u.OutputTokens
	}
	for _, n := range calls {
		t.counts[search.ToolCalls] += n
	}
	for _, n := range failed {
		t.counts[search.ToolFailures] += n
	}
	if r.DurationMs != nil {
		t.durations = append(t.durations, *r.DurationMs)
	}
	if r.TimeToFirstTokenMs != nil {
		t.firstTokens = append(t.firstTokens, *r.TimeToFirstTokenMs)
	}
}

// group returns the measures of a group.
func (t *tally) group(measures []search.Measure) search.Group {
	slices.Sort(t.durations)
	slices.Sort(t.firstTokens)
	g := search.Group{Keys: t.keys}
	for _, m := range measures {
		switch m {
		case search.DurationP50:
			g.Values = append(g.Values, search.Quantile(t.durations, 0.5))
		case search.DurationP95:
			g.Values = append(g.Values, search.Quantile(t.durations, 0.95))
		case search.FirstTokenP50:
			g.Values = append(g.Values, search.Quantile(t.firstTokens, 0.5))
		default:
			n := t.counts[m]
			g.Values = append(g.Values, &n)
		}
	}
	return g
}
