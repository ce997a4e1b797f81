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

// The parameters of a statistic beside the filter's and ParamLimit.
const (
	ParamBy      = "by"
	ParamMeasure = "measure"
)

// StatisticsParams are all parameters of a statistic.
var StatisticsParams = append(slices.Clone(FilterParams), ParamBy, ParamMeasure, ParamLimit)

// Dimension is what runs are grouped by: one of the words below, or "label:" and a label's key.
type Dimension string

// The dimensions. A run is in one group for each of its models and tools, and without any in the group "".
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

// Label returns the key of the label that a dimension is.
func (d Dimension) Label() (key string, is bool) { return strings.CutPrefix(string(d), labelPrefix) }

// Measure is a number of a group of runs.
type Measure string

// The measures. Percentiles are null where no run has the number.
const (
	Runs            Measure = "runs"
	Errors          Measure = "errors"        // runs that ended with RUN_ERROR
	Regenerations   Measure = "regenerations" // see Regeneration
	Edits           Measure = "edits"         // see Edit
	Interrupts      Measure = "interrupts"    // that runs ended with
	InputTokens     Measure = "inputTokens"   // by model: of that model
	OutputTokens    Measure = "outputTokens"
	Tokens          Measure = "tokens"          // input and output
	DurationP50     Measure = "durationP50"     // milliseconds, of runs that have ended
	DurationP95     Measure = "durationP95"     // milliseconds
	FirstTokenP50   Measure = "firstTokenP50"   // milliseconds to the first text
	ToolCalls       Measure = "toolCalls"       // by tool: of that tool
	ToolFailures    Measure = "toolFailures"    // calls whose result, in the run or a later one's input, has an error
	ToolDurationP95 Measure = "toolDurationP95" // milliseconds from a call to its result in the same run; by tool: of that tool
)

// Measures are all measures.
var Measures = []Measure{
	Runs, Errors, Regenerations, Edits, Interrupts, InputTokens, OutputTokens, Tokens, DurationP50, DurationP95, FirstTokenP50, ToolCalls, ToolFailures,
	ToolDurationP95,
}

const (
	maxDimensions = 3
	defaultGroups = 1000
	maxGroups     = 10_000
)

// Statistics groups and measures the runs that a filter selects.
type Statistics struct {
	Filter
	By       []Dimension // at most 3, none twice; with none all runs are one group
	Measures []Measure   // at least one, none twice
	// Limit is the most groups of the answer. Of more, those with the greatest first measure are in it.
	Limit int
	Bounds
}

// Group is a line of a statistic.
type Group struct {
	// Keys are the group's values, in the order of Statistics.By. Hours are written 2026-09-17T12:00:00Z, days and weeks 2026-09-17.
	Keys []string
	// Values are in the order of Statistics.Measures; nil where there is none.
	Values []*int64
}

// Table is what a statistic comes to.
type Table struct {
	Groups []Group // in the order of their keys
	// More: there are more groups than Statistics.Limit.
	More bool
}

// Cut keeps the groups of a limit with the greatest first measure, equal ones by their keys, and orders them by their keys.
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

// ParseStatistics reads a statistic. Bounds are the caller's. Errors are *ParameterError.
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
				return s, &ParameterError{ParamBy, fmt.Sprintf("up to %d of agent, model, status, tool, hour, day, week and label:KEY, with commas between", maxDimensions), text}
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
	s.Limit, err = parseLimit(q, defaultGroups, maxGroups)
	return s, err
}

func (d Dimension) valid() bool {
	if key, is := d.Label(); is {
		return (record.Label{Key: key}).Valid()
	}
	return slices.Contains([]Dimension{ByAgent, ByModel, ByStatus, ByTool, ByHour, ByDay, ByWeek}, d)
}

// The lengths of ByHour, ByDay and ByWeek, and the shift that has weeks start on Monday: 1970 began on a Thursday.
const (
	hour  = int64(time.Hour / time.Millisecond)
	day   = 24 * hour
	week  = 7 * day
	shift = 3 * day
)

// Time reports whether the dimension is of time.
func (d Dimension) Time() bool { return d == ByHour || d == ByDay || d == ByWeek }

// Bucket writes the hour, day or week that a time lies in.
func (d Dimension) Bucket(t time.Time) string {
	ms := t.UnixMilli()
	switch d {
	case ByHour:
		return time.UnixMilli(floor(ms, hour)).UTC().Format(time.RFC3339)
	case ByWeek:
		ms = floor(ms+shift, week) - shift
	default:
		ms = floor(ms, day)
	}
	return time.UnixMilli(ms).UTC().Format(time.DateOnly)
}

func floor(ms, unit int64) int64 { return ms - (ms%unit+unit)%unit }

// Quantile returns the value that a share of the sorted values lies below, by the rule of ClickHouse's quantileExact; nil where there is none.
func Quantile(sorted []int64, share float64) *int64 {
	if len(sorted) == 0 {
		return nil
	}
	v := sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
	return &v
}
