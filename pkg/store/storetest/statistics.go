package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/store"
)

// A statistic measures what plain counting over the same runs measures.
func statistics(t *testing.T, s Store) {
	r := searchSeed(t)
	all := searched(t, s, r, 160)
	dimensions := []search.Dimension{search.ByAgent, search.ByModel, search.ByStatus, search.ByTool, search.ByHour, search.ByDay,
		search.ByWeek, "label:user", "label:a'b\\"}
	for i := range 20 {
		q := search.Statistics{Filter: someFilter(r), Measures: slices.Clone(search.Measures), Limit: 10_000, Bounds: searchBounds}
		if i%2 == 0 { // each alone, too
			q.Measures = []search.Measure{pick(r, search.Measures...)}
		}
		for range r.IntN(4) {
			if d := pick(r, dimensions...); !slices.Contains(q.By, d) {
				q.By = append(q.By, d)
			}
		}
		want := counting(q, all)
		got, err := s.Statistics(t.Context(), "acme", q)
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		if g, w := jsonOf(t, got.Groups), jsonOf(t, want); g != w || got.More {
			t.Errorf("%+v (more %t):\n got %s\nwant %s", q, got.More, g, w)
		}
	}
	q := search.Statistics{By: []search.Dimension{search.ByAgent}, Measures: []search.Measure{search.Tokens, search.Runs}, Limit: 2,
		Bounds: searchBounds}
	want := search.Table{Groups: counting(q, all)}
	want.Cut(2)
	if got, err := s.Statistics(t.Context(), "acme", q); err != nil || !got.More || jsonOf(t, got) != jsonOf(t, want) {
		t.Errorf("two of four groups: %s, %v, want %s", jsonOf(t, got), err, jsonOf(t, want))
	}
	q.Bounds.Rows = 5
	if _, err := s.Statistics(t.Context(), "acme", q); !errors.Is(err, search.ErrTooMuch) {
		t.Errorf("more rows than the bound: %v, want ErrTooMuch", err)
	}
}

// A call whose id comes again in the thread, which an agent or a snapshot may do, counts once: where it was made first, with the time that
// it has there, be it none. Runs that are running do not count.
func callsMadeTwice(t *testing.T, s Store) {
	calls := func(run string, first int64, status record.Status, tool string, times map[string][]int64) store.Entry {
		k := key{"acme", "thread", run}
		r := k.record(first, status)
		r.Stats.ToolCalls, r.Stats.ToolCallTimes = map[string]int64{tool: 2}, times
		for _, id := range []string{"a", "b"} {
			raw := fmt.Sprintf(`{"id":"m%s","role":"assistant","toolCalls":[{"id":"%s","type":"function","function":{"name":%q,"arguments":"{}"}}]}`, id, id, tool)
			r.Messages = append(r.Messages, agui.Message{ID: "m" + id, Role: agui.RoleAssistant, Raw: json.RawMessage(raw)})
		}
		return k.entry(first, r)
	}
	write(t, s,
		calls("later", 20, record.StatusFinished, "fetch", map[string][]int64{"a": {0, 70}, "b": {0, 80}}),
		calls("first", 10, record.StatusFinished, "search", map[string][]int64{"a": {5, 12}}),
		calls("running", 5, record.StatusRunning, "search", map[string][]int64{"a": {0, 1}}))
	got, err := s.Statistics(t.Context(), "acme", search.Statistics{
		By: []search.Dimension{search.ByTool}, Measures: []search.Measure{search.ToolDurationP95}, Limit: 10, Bounds: searchBounds,
	})
	if want := `[{"Keys":["fetch"],"Values":[null]},{"Keys":["search"],"Values":[7]}]`; err != nil || jsonOf(t, got.Groups) != want {
		t.Errorf("%s, %v, want %s", jsonOf(t, got.Groups), err, want)
	}
}

// counting is the reference of a statistic.
func counting(q search.Statistics, all []*searchedRun) []search.Group {
	type member struct {
		run         *searchedRun
		model, tool *string // those of the group, where it is one of a model or tool
	}
	groups, keys := map[string][]member{}, map[string][]string{}
	if len(q.By) == 0 {
		groups["[]"], keys["[]"] = nil, []string{}
	}
	for _, run := range all {
		if !wants(q.Filter, all, run) {
			continue
		}
		models, tools := models(run), slices.Collect(maps.Keys(run.Stats.ToolCalls))
		if len(models) == 0 || !slices.Contains(q.By, search.ByModel) {
			models = []string{""}
		}
		if len(tools) == 0 || !slices.Contains(q.By, search.ByTool) {
			tools = []string{""}
		}
		for _, model := range models {
			for _, tool := range tools {
				m, key := member{run: run}, []string{}
				for _, d := range q.By {
					at := run.StartedAt.UTC()
					switch d {
					case search.ByAgent:
						key = append(key, run.Agent)
					case search.ByStatus:
						key = append(key, string(run.Status))
					case search.ByModel:
						key, m.model = append(key, model), &model
					case search.ByTool:
						key, m.tool = append(key, tool), &tool
					case search.ByHour:
						key = append(key, at.Format("2006-01-02T15:00:00Z"))
					case search.ByDay:
						key = append(key, at.Format(time.DateOnly))
					case search.ByWeek:
						key = append(key, at.AddDate(0, 0, -(int(at.Weekday())+6)%7).Format(time.DateOnly))
					default:
						key = append(key, run.Labels[strings.TrimPrefix(string(d), "label:")])
					}
				}
				name := fmt.Sprint(len(key), key)
				if len(key) == 0 {
					name = "[]"
				}
				groups[name], keys[name] = append(groups[name], m), key
			}
		}
	}
	out := []search.Group{}
	for name, members := range groups {
		g := search.Group{Keys: keys[name]}
		for _, measure := range q.Measures {
			sum, values := int64(0), []int64(nil)
			for _, m := range members {
				value := func(v *int64) {
					if v != nil {
						values = append(values, *v)
					}
				}
				switch measure {
				case search.Runs:
					sum++
				case search.Errors:
					sum += one(m.run.Status == record.StatusError)
				case search.Regenerations:
					sum += one(rewrote(all, m.run) == search.Regeneration)
				case search.Edits:
					sum += one(rewrote(all, m.run) == search.Edit)
				case search.Interrupts:
					sum += int64(len(m.run.Interrupts))
				case search.InputTokens, search.OutputTokens, search.Tokens:
					input, output, total := tokens(m.run, m.model)
					value(map[search.Measure]*int64{search.InputTokens: input, search.OutputTokens: output, search.Tokens: total}[measure])
				case search.ToolCalls:
					for tool, n := range m.run.Stats.ToolCalls {
						sum += one(m.tool == nil || *m.tool == tool) * n
					}
				case search.ToolFailures:
					for tool, n := range m.run.failed {
						sum += one(m.tool == nil || *m.tool == tool) * int64(n)
					}
				case search.FirstTokenP50:
					value(m.run.Stats.TimeToFirstToken)
				case search.ToolDurationP95:
					for tool, took := range m.run.took {
						if m.tool == nil || *m.tool == tool {
							values = append(values, took...)
						}
					}
				default:
					value(m.run.Stats.Duration)
				}
			}
			share := 0.0
			switch measure {
			case search.InputTokens, search.OutputTokens, search.Tokens:
				for _, n := range values {
					sum += n
				}
				if len(values) == 0 {
					g.Values = append(g.Values, nil)
					continue
				}
			case search.DurationP50, search.FirstTokenP50:
				share = 0.5
			case search.DurationP95, search.ToolDurationP95:
				share = 0.95
			}
			switch {
			case share == 0:
				g.Values = append(g.Values, &sum)
			case len(values) == 0:
				g.Values = append(g.Values, nil)
			default:
				slices.Sort(values)
				v := values[int(share*float64(len(values)))]
				g.Values = append(g.Values, &v)
			}
		}
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b search.Group) int { return slices.Compare(a.Keys, b.Keys) })
	return out
}

func one(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
