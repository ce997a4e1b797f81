package search

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

// ErrTooMuch means that a search would read more rows, or take more time, than Bounds allow.
var ErrTooMuch = errors.New("the search reads too much")

// Bounds limit the cost of one search or statistic in the store, which returns ErrTooMuch beyond either. Both must be above zero.
type Bounds struct {
	Rows int64 // rows of any table that are read; ClickHouse counts whole granules
	Time time.Duration
}

// Sort is the sort key of a search.
type Sort string

// The orders. Runs of equal keys are ordered by thread and run id, in the same direction.
const (
	SortStarted  Sort = "started"  // start of the run, in milliseconds since 1970
	SortDuration Sort = "duration" // milliseconds; -1 for a run that has not ended
	SortTokens   Sort = "tokens"   // Run.Tokens; -1 for a run that has none
)

// The parameters of a search besides those of its filter.
const (
	ParamSort  = "sort"
	ParamOrder = "order"
	ParamLimit = "limit"
	ParamAfter = "after"
)

// QueryParams are all parameters of a search.
var QueryParams = append(slices.Clone(FilterParams), ParamSort, ParamOrder, ParamLimit, ParamAfter)

const (
	defaultLimit = 100
	maxLimit     = 1000
)

// Query selects, orders and pages runs.
type Query struct {
	Filter
	Sort      Sort
	Ascending bool
	Limit     int // 1 to 1000
	// After is the last run of the previous page; nil is the beginning.
	After *Position
	Bounds
}

// Position is a run's position in the order of a search.
type Position struct {
	Key             int64 // the sort key
	ThreadID, RunID string
}

// Page is a page of runs.
type Page struct {
	Runs []Run
	// Next is the position of the last run; nil if no run follows it.
	Next *Position
}

// Run is a run in the result of a search. Times are in whole milliseconds.
type Run struct {
	ThreadID    string            `json:"threadId"`
	RunID       string            `json:"runId"`
	ParentRunID string            `json:"parentRunId,omitempty"`
	BranchID    string            `json:"branchId"`
	Depth       int               `json:"depth"`
	Status      record.Status     `json:"status"`
	Agent       string            `json:"agent,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	StartedAt   time.Time         `json:"startedAt"`
	EndedAt     *time.Time        `json:"endedAt,omitempty"`
	// DurationMs is nil before the run's end, TimeToFirstTokenMs before its first text.
	DurationMs         *int64 `json:"durationMs,omitempty"`
	TimeToFirstTokenMs *int64 `json:"timeToFirstTokenMs,omitempty"`
	// Models are the models whose tokens the run reported, sorted.
	Models agui.Strings `json:"models,omitempty"`
	// InputTokens, OutputTokens and Tokens are the sums of what was reported, nil if nothing was. An entry of usage adds to Tokens if it has
	// both input and output.
	InputTokens  *int64 `json:"inputTokens,omitempty"`
	OutputTokens *int64 `json:"outputTokens,omitempty"`
	Tokens       *int64 `json:"tokens,omitempty"`
	// ToolCalls are the numbers of calls by tool.
	ToolCalls agui.StringMap[int64] `json:"toolCalls,omitempty"`
	// Interrupts is the number of interrupts at the run's end, Messages that of messages in the history at its end.
	Interrupts   int    `json:"interrupts"`
	Messages     int    `json:"messages"`
	ErrorCode    string `json:"errorCode,omitempty"`
	ErrorMessage string `json:"errorMessage,omitempty"`
	// Stopped means that Skein's proxy ended the run on request.
	Stopped bool `json:"stopped,omitempty"`
	// Rewrote has the ways in which the input departs from the parent's history (lineage.Rewrites).
	Rewrote []string `json:"rewrote,omitempty"`
	// Question and Reply are the first 200 characters of the user's last new message and of the agent's last text.
	Question string `json:"question,omitempty"`
	Reply    string `json:"reply,omitempty"`
}

// Key returns the run's sort key.
func (r *Run) Key(by Sort) int64 {
	key := new(r.StartedAt.UnixMilli())
	switch by {
	case SortDuration:
		key = r.DurationMs
	case SortTokens:
		key = r.Tokens
	}
	if key == nil {
		return -1
	}
	return *key
}

// ParseQuery parses a search of a tenant's runs; the caller sets Bounds. Errors are *ParameterError.
func ParseQuery(q url.Values, tenant string, now time.Time) (Query, error) {
	s := Query{Sort: SortStarted}
	var err error
	if s.Filter, err = ParseFilter(q, now); err != nil {
		return s, err
	}
	if text := q.Get(ParamSort); text != "" {
		if s.Sort = Sort(text); s.Sort != SortStarted && s.Sort != SortDuration && s.Sort != SortTokens {
			return s, &ParameterError{ParamSort, "started, duration or tokens", text}
		}
	}
	switch text := q.Get(ParamOrder); text {
	case "", "desc":
	case "asc":
		s.Ascending = true
	default:
		return s, &ParameterError{ParamOrder, "desc or asc", text}
	}
	if s.Limit, err = ParseNumber(q, ParamLimit, defaultLimit, 1, maxLimit); err != nil {
		return s, err
	}
	if text := q.Get(ParamAfter); text != "" {
		if err := s.resume(q, tenant, text); err != nil {
			return s, err
		}
	}
	return s, nil
}

// ParseNumber parses a whole number from low to high. It returns fallback if the parameter is absent or empty.
func ParseNumber(q url.Values, name string, fallback, low, high int) (int, error) {
	text := q.Get(name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return 0, &ParameterError{name, fmt.Sprintf("a whole number from %d to %d", low, high), text}
	}
	return n, nil
}

// cursorVersion is the version of cursors and of the meaning of filters. Cursors of other versions are refused.
const cursorVersion = 2

// cursor is the decoded ParamAfter. It has Since and Until as of the first page, so that relative times give all pages the same
// range. It needs no signature: a forged one is only another position in the runs of the caller's own tenant.
type cursor struct {
	Version int    `json:"v"`
	Of      []byte `json:"of"` // see binding
	Since   *int64 `json:"s,omitempty"`
	Until   *int64 `json:"u,omitempty"`
	Key     int64  `json:"k"`
	Thread  string `json:"t"`
	Run     string `json:"r"`
}

// binding hashes the tenant and the parameters that all pages of a search have in common, as they were written.
func binding(q url.Values, tenant string) []byte {
	of := url.Values{"tenant": {tenant}}
	for _, name := range QueryParams {
		if name != ParamAfter && name != ParamLimit {
			of[name] = slices.DeleteFunc(slices.Sorted(slices.Values(q[name])), func(v string) bool { return v == "" })
		}
	}
	sum := sha256.Sum256([]byte(of.Encode()))
	return sum[:12]
}

// Cursor returns the ParamAfter of the page after a position. It is valid only with the same parameters and tenant.
func (s *Query) Cursor(q url.Values, tenant string, next Position) (string, error) {
	c := cursor{Version: cursorVersion, Of: binding(q, tenant), Key: next.Key, Thread: next.ThreadID, Run: next.RunID}
	if !s.Since.IsZero() {
		c.Since = new(s.Since.UnixMilli())
	}
	if !s.Until.IsZero() {
		c.Until = new(s.Until.UnixMilli())
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encoding cursor: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(raw), nil
}

// resume sets After, Since and Until from a cursor.
func (s *Query) resume(q url.Values, tenant, text string) error {
	bad := func(takes string) error { return &ParameterError{ParamAfter, takes, text} }
	raw, err := base64.RawURLEncoding.DecodeString(text)
	var c cursor
	if err != nil || json.Unmarshal(raw, &c) != nil {
		return bad("next of the page before")
	}
	if c.Version != cursorVersion {
		return bad("next of a page of this version of Skein; start again without it")
	}
	if !slices.Equal(c.Of, binding(q, tenant)) {
		return bad("next of a page with the same filter, sort and order, of the same tenant")
	}
	if (c.Since == nil) != s.Since.IsZero() || (c.Until == nil) != s.Until.IsZero() {
		return bad("next of the page before")
	}
	if c.Since != nil {
		s.Since = time.UnixMilli(*c.Since).UTC()
	}
	if c.Until != nil {
		s.Until = time.UnixMilli(*c.Until).UTC()
	}
	s.After = &Position{c.Key, c.Thread, c.Run}
	return nil
}
