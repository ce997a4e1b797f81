package search

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/skeinhq/skein/pkg/record"
)

// The parameters of a statistic besides those of its filter and ParamLimit.
const (
	ParamBy      = "by"
	ParamMeasure = "measure"
)

// StatisticsParams are all parameters of a statistic.
var StatisticsParams = append(slices.Clone(FilterParams), ParamBy, ParamMeasure, ParamLimit)

// Dimension is a grouping of runs: one of those below, or "label:" and a label's key.
type Dimension string

// The dimensions. A run is in the group of each of its models or tools, or in the group "" if it has none.
const (
	ByAgent  Dimension = "agent"
	ByModel  Dimension = "model"
	ByStatus Dimension = "status"
	ByTool   Dimension = "tool"
	ByHour   Dimension = "hour" // start of the run, in UTC
	ByDay    Dimension = "day"
	ByWeek   Dimension = "week" // from Monday

	labelPrefix = "label:"
)

// Label returns the key of a label's dimension.
func (d Dimension) Label() (key string, is bool) { return strings.CutPrefix(string(d), labelPrefix) }

// Measure is a number that is computed for a group of runs.
type Measure string

// The measures. Percentiles and tokens are null if no run has the number.
const (
	Runs            Measure = "runs"
	Errors          Measure = "errors"        // runs that ended with RUN_ERROR
	Regenerations   Measure = "regenerations" // see Regeneration
	Edits           Measure = "edits"         // see Edit
	Interrupts      Measure = "interrupts"    // at the ends of runs
	InputTokens     Measure = "inputTokens"   // by model: of that model
	OutputTokens    Measure = "outputTokens"
	Tokens          Measure = "tokens"          // input and output, of entries that have both
	DurationP50     Measure = "durationP50"     // milliseconds, of runs that have ended
	DurationP95     Measure = "durationP95"     // milliseconds
	FirstTokenP50   Measure = "firstTokenP50"   // milliseconds to the first text
	ToolCalls       Measure = "toolCalls"       // by tool: of that tool
	ToolFailures    Measure = "toolFailures"    // calls whose result, in the run or a later one's input, has an error
	ToolDurationP95 Measure = "toolDurationP95" // milliseconds from a call to its result in the same run; by tool: of that tool
)

// Measures are all measures.
var Measures = []Measure{
	Runs, Errors, Regenerations, Edits, Interrupts, InputTokens, OutputTokens, Tokens,
	DurationP50, DurationP95, FirstTokenP50, ToolCalls, ToolFailures, ToolDurationP95,
}

const (
	maxDimensions = 3
	defaultGroups = 1000
	maxGroups     = 10_000
)

// Statistics groups and measures the runs that a filter selects.
type Statistics struct {
	Filter
	By       []Dimension // at most 3, without duplicates; if empty, all runs are one group
	Measures []Measure   // at least one, without duplicates
	// Limit is the maximum number of groups. If there are more, those with the greatest first measure are returned.
	Limit int
	Bounds
}

// Group is a group of a statistic.
type Group struct {
	// Keys are the group's dimensions, in the order of Statistics.By. Hours have the form 2026-09-17T12:00:00Z, days and weeks 2026-09-17.
	Keys []string
	// Values are in the order of Statistics.Measures; nil for a missing value.
	Values []*int64
}

// Table is the result of a statistic.
type Table struct {
	Groups []Group // in the order of their keys
	// More means that there are more groups than Statistics.Limit.
	More bool
}

// Cut keeps at most limit groups, those with the greatest first measure and then the first by keys, and sorts them by keys.
func (t *Table) Cut(limit int) {
	if len(t.Groups) > limit {
		first := func(g Group) int64 {
			if g.Values[0] == nil {
				return -1
			}
			return *g.Values[0]
		}
		slices.SortFunc(t.Groups, func(a, b Group) int {
			return cmp.Or(cmp.Compare(first(b), first(a)), slices.Compare(a.Keys, b.Keys))
		})
		t.Groups, t.More = slices.Clip(t.Groups[:limit]), true
	}
	slices.SortFunc(t.Groups, func(a, b Group) int { return slices.Compare(a.Keys, b.Keys) })
}

// ParseStatistics parses a statistic; the caller sets Bounds. Errors are *ParameterError.
func ParseStatistics(q url.Values, now time.Time) (Statistics, error) {
	s := Statistics{Measures: []Measure{Runs}}
	var err error
	if s.Filter, err = ParseFilter(q, now); err != nil {
		return s, err
	}
	if text := q.Get(ParamBy); text != "" {
		for _, word := range strings.Split(text, ",") {
			d := Dimension(word)
			if !d.valid() || slices.Contains(s.By, d) || len(s.By) == maxDimensions {
				takes := fmt.Sprintf("up to %d of agent, model, status, tool, hour, day, week and label:KEY, with commas between", maxDimensions)
				return s, &ParameterError{ParamBy, takes, text}
			}
			s.By = append(s.By, d)
		}
	}
	if text := q.Get(ParamMeasure); text != "" {
		s.Measures = nil
		for _, word := range strings.Split(text, ",") {
			m := Measure(word)
			if !slices.Contains(Measures, m) || slices.Contains(s.Measures, m) {
				names := make([]string, len(Measures))
				for i, m := range Measures {
					names[i] = string(m)
				}
				return s, &ParameterError{ParamMeasure, "some of " + strings.Join(names, ", ") + ", with commas between, none twice", text}
			}
			s.Measures = append(s.Measures, m)
		}
	}
	s.Limit, err = ParseNumber(q, ParamLimit, defaultGroups, 1, maxGroups)
	return s, err
}

func (d Dimension) valid() bool {
	if key, is := d.Label(); is {
		return (record.Label{Key: key}).Valid()
	}
	return slices.Contains([]Dimension{ByAgent, ByModel, ByStatus, ByTool, ByHour, ByDay, ByWeek}, d)
}

// Time reports whether the dimension is an hour, day or week.
func (d Dimension) Time() bool { return d == ByHour || d == ByDay || d == ByWeek }

// Bucket formats the hour, day or week of a time.
func (d Dimension) Bucket(t time.Time) string {
	t = t.UTC()
	switch d {
	case ByHour:
		return t.Truncate(time.Hour).Format(time.RFC3339)
	case ByWeek:
		t = t.Truncate(7 * 24 * time.Hour) // counts from the year 1, which began on a Monday
	}
	return t.Format(time.DateOnly)
}

// Quantile returns a quantile of sorted values by the rule of ClickHouse's quantileExact; nil without values.
func Quantile(sorted []int64, share float64) *int64 {
	if len(sorted) == 0 {
		return nil
	}
	v := sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
	return &v
}
