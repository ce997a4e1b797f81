package search

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// The parameters of a filter. The command line has a flag of the same name for each.
const (
	ParamSince   = "since"
	ParamUntil   = "until"
	ParamStatus  = "status"
	ParamAgent   = "agent"
	ParamUser    = "user"
	ParamLabel   = "label"
	ParamTool    = "tool"
	ParamModel   = "model"
	ParamError   = "error"
	ParamRewrote = "rewrote"
	ParamPending = "pending"
	ParamPrefix  = "prefix"
	ParamDepth   = "depth"
	ParamWords   = "words"
	// ParamArchived is a parameter of the list of threads, too.
	ParamArchived = "archived"
)

// FilterParams are the parameters of a filter. ParamLabel may be repeated.
var FilterParams = []string{
	ParamSince, ParamUntil, ParamStatus, ParamAgent, ParamUser, ParamLabel, ParamTool, ParamModel, ParamError, ParamRewrote, ParamPending,
	ParamDepth, ParamPrefix, ParamWords, ParamArchived,
}

// The limits of a filter's values.
const (
	maxValue  = record.MaxIDBytes    // bytes of a name or a prefix
	maxLabels = record.MaxLabels     // conditions on labels
	maxLabel  = record.MaxLabelBytes // bytes of a label's key, and of its value
	maxWords  = 32                   // words
	maxWord   = record.MaxIDBytes    // characters of a word
)

// userLabel is the label of ParamUser.
const userLabel = "user"

// ErrorAny selects the runs that ended with any error.
const ErrorAny = "any"

// NoAgent selects the runs without an agent.
const NoAgent = "-"

// The values of Filter.Rewrote that compare a run with its siblings, the other runs of its parent. A regeneration has an input
// whose new messages have the same contents as those of an earlier sibling. An edit has earlier siblings, but none with the
// same contents.
const (
	Regeneration = "regeneration"
	Edit         = "edit"
)

// Rewrotes are all values of Filter.Rewrote: Regeneration, Edit and lineage.Rewrites, the ways in which a run's input departs
// from its parent's history.
var Rewrotes = func() []string {
	all := []string{Regeneration, Edit}
	for _, r := range lineage.Rewrites {
		all = append(all, string(r))
	}
	return all
}()

// Filter selects the runs that meet all of its conditions. The zero value selects all runs.
type Filter struct {
	// Since and Until bound the start of a run, in whole milliseconds; Until is exclusive. Zero is no bound.
	Since, Until time.Time
	Statuses     []record.Status // one of these
	Agent        string          // or NoAgent
	Labels       []LabelIs       // all of these
	Tool         string          // a tool that the run called
	Model        string          // a model whose tokens the run reported
	Error        string          // the code of the run's RUN_ERROR, or ErrorAny
	Rewrote      string          // one of Rewrotes
	Pending      bool            // ended with tool calls without a result (record.Run.PendingToolCalls)
	Depth        *Depth          // nil: any
	Prefix       string          // of the thread's id
	// Words must all be in the text of one message that the run or its input added, in the error of such a tool message, in the
	// message of the RUN_ERROR that ended it or in the thread's title, all ignoring case, or in an id as HasWords has it. Messages of running
	// runs are not searched.
	Words []string
	// Archived is ArchivedNo or ArchivedYes; empty: all threads.
	Archived string
}

// The values of ParamArchived.
const (
	ArchivedNo  = "no"  // threads that are not archived
	ArchivedYes = "yes" // archived ones
	ArchivedAll = "all"
)

// HasWords reports whether an id contains all words of the filter, if there are any, ignoring the case of A to Z only.
func (f *Filter) HasWords(id string) bool {
	id = LowerID(id)
	return len(f.Words) > 0 && !slices.ContainsFunc(f.Words, func(w string) bool { return !strings.Contains(id, LowerID(w)) })
}

// LowerID returns a text with A to Z in lower case, as the function lower of ClickHouse does.
func LowerID(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, text)
}

// AgentName returns the agent of the runs that the filter selects, if Agent is set: "" for NoAgent.
func (f *Filter) AgentName() string {
	if f.Agent == NoAgent {
		return ""
	}
	return f.Agent
}

// AsksAgain reports whether the filter selects regenerations or edits, for which a run's siblings have to be read.
func (f *Filter) AsksAgain() bool { return f.Rewrote == Regeneration || f.Rewrote == Edit }

// Depth bounds a run's distance from its root; both bounds are inclusive.
type Depth struct{ Min, Max int }

// LabelIs requires a label with this key and, unless Any is set, this value.
type LabelIs struct {
	Key, Value string
	Any        bool
}

// ParameterError is the error of an invalid value of a parameter.
type ParameterError struct {
	Param string
	Takes string // what the parameter takes
	Value string
}

func (e *ParameterError) Error() string {
	return fmt.Sprintf("%s must be %s, not %.80q", e.Param, e.Takes, e.Value)
}

// Statuses are all statuses of runs.
var Statuses = []record.Status{
	record.StatusRunning, record.StatusFinished, record.StatusError, record.StatusInterrupted, record.StatusCancelled, record.StatusAbandoned,
}

// ParseFilter parses the filter's parameters and ignores others. An empty parameter is the same as a missing one. Relative
// times count back from now. Errors are *ParameterError.
func ParseFilter(q url.Values, now time.Time) (Filter, error) {
	var f Filter
	var err error
	if f.Since, err = parseTime(q, ParamSince, now); err != nil {
		return f, err
	}
	if f.Until, err = parseTime(q, ParamUntil, now); err != nil {
		return f, err
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return f, &ParameterError{ParamUntil, "later than since", q.Get(ParamUntil)}
	}
	if text := q.Get(ParamStatus); text != "" {
		for _, word := range strings.Split(text, ",") {
			s := record.Status(word)
			if !slices.Contains(Statuses, s) {
				return f, &ParameterError{
					ParamStatus, "running, finished, error, interrupted, cancelled or abandoned, or several of them with commas between", text,
				}
			}
			if !slices.Contains(f.Statuses, s) {
				f.Statuses = append(f.Statuses, s)
			}
		}
	}
	for _, p := range []struct {
		name string
		to   *string
	}{
		{ParamAgent, &f.Agent}, {ParamTool, &f.Tool}, {ParamModel, &f.Model}, {ParamError, &f.Error}, {ParamPrefix, &f.Prefix},
	} {
		*p.to = q.Get(p.name)
		if len(*p.to) > maxValue || !utf8.ValidString(*p.to) {
			return f, &ParameterError{p.name, fmt.Sprintf("at most %d bytes of UTF-8", maxValue), *p.to}
		}
	}
	if f.Labels, err = parseLabels(q); err != nil {
		return f, err
	}
	if f.Rewrote = q.Get(ParamRewrote); f.Rewrote != "" && !slices.Contains(Rewrotes, f.Rewrote) {
		return f, &ParameterError{ParamRewrote, "one of " + strings.Join(Rewrotes, ", "), f.Rewrote}
	}
	if text := q.Get(ParamPending); text != "" && text != "true" {
		return f, &ParameterError{ParamPending, "true", text}
	}
	f.Pending = q.Get(ParamPending) != ""
	if f.Depth, err = parseDepth(q.Get(ParamDepth)); err != nil {
		return f, err
	}
	if f.Words, err = ParseWords(q, ParamWords); err != nil {
		return f, err
	}
	switch which := q.Get(ParamArchived); which {
	case "", ArchivedAll:
	case ArchivedNo, ArchivedYes:
		f.Archived = which
	default:
		return f, &ParameterError{ParamArchived, "no, yes or all", which}
	}
	return f, nil
}

// ParseWords reads words that are searched in texts. It returns none if the parameter is absent.
func ParseWords(q url.Values, name string) ([]string, error) {
	text := q.Get(name)
	if text == "" {
		return nil, nil
	}
	words := strings.Fields(text)
	long := func(w string) bool { return utf8.RuneCountInString(w) > maxWord }
	if len(words) == 0 || len(words) > maxWords || slices.ContainsFunc(words, long) || !utf8.ValidString(text) {
		return nil, &ParameterError{name, fmt.Sprintf("1 to %d words of at most %d characters", maxWords, maxWord), text}
	}
	return words, nil
}

// maxDepth is the greatest depth in a store.
const maxDepth = math.MaxInt32

// parseDepth parses N or FROM:TO. One of FROM and TO may be omitted.
func parseDepth(text string) (*Depth, error) {
	if text == "" {
		return nil, nil
	}
	bad := &ParameterError{ParamDepth, "a number of runs from the root such as 0, or a range such as 3:, :5 or 3:5", text}
	number := func(text string, fallback int) (int, bool) {
		if text == "" {
			return fallback, true
		}
		n, err := strconv.ParseUint(text, 10, 31)
		return int(n), err == nil
	}
	from, to, is := strings.Cut(text, ":")
	if !is {
		to = from
	}
	low, ok := number(from, 0)
	high, okHigh := number(to, maxDepth)
	if !ok || !okHigh || low > high || text == ":" {
		return nil, bad
	}
	return &Depth{low, high}, nil
}

func parseLabels(q url.Values) ([]LabelIs, error) {
	var labels []LabelIs
	add := func(param, text string, l LabelIs) error {
		if !(record.Label{Key: l.Key, Value: l.Value}).Valid() {
			return &ParameterError{param, fmt.Sprintf("KEY=VALUE, or KEY for any value, each of at most %d bytes", maxLabel), text}
		}
		labels = append(labels, l)
		return nil
	}
	for _, text := range q[ParamLabel] {
		if text == "" {
			continue
		}
		key, value, has := strings.Cut(text, "=")
		if err := add(ParamLabel, text, LabelIs{key, value, !has}); err != nil {
			return nil, err
		}
	}
	if len(labels) > maxLabels {
		return nil, &ParameterError{ParamLabel, fmt.Sprintf("given at most %d times", maxLabels), strconv.Itoa(len(labels)) + " of them"}
	}
	if user := q.Get(ParamUser); user != "" {
		if len(user) > maxLabel || !utf8.ValidString(user) {
			return nil, &ParameterError{ParamUser, fmt.Sprintf("at most %d bytes of UTF-8", maxLabel), user}
		}
		labels = append(labels, LabelIs{userLabel, user, false})
	}
	return labels, nil
}

// The range of times in a store.
var (
	firstTime = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	lastTime  = time.Date(2261, 1, 1, 0, 0, 0, 0, time.UTC)
)

// parseTime parses a time, or a duration before now.
func parseTime(q url.Values, name string, now time.Time) (time.Time, error) {
	text := q.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	bad := &ParameterError{name, "a time such as 2026-09-17T12:00:00Z, or how long ago, such as 90m, 24h, 7d or 2w", text}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		ago, ok := parseAgo(text)
		if !ok {
			return t, bad
		}
		t = now.Add(-ago)
	}
	if t.Before(firstTime) || t.After(lastTime) {
		return t, bad
	}
	return t.UTC().Truncate(time.Millisecond), nil
}

// parseAgo parses a whole number of minutes, hours, days or weeks.
func parseAgo(text string) (time.Duration, bool) {
	units := map[byte]time.Duration{'m': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}
	unit := units[text[len(text)-1]]
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 32)
	if unit == 0 || err != nil || n > uint64(100*365*24*time.Hour/unit) {
		return 0, false
	}
	return time.Duration(n) * unit, true
}
