package search

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
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

// ErrTooMuch says that a search would read more rows, or take more time, than Bounds allow.
var ErrTooMuch = errors.New("the search reads too much")

// Bounds limit what one search or statistic costs the store. Beyond either it ends with ErrTooMuch. Both must be above zero.
type Bounds struct {
	Rows int64 // rows of any table that are read; ClickHouse counts whole granules
	Time time.Duration
}

// Sort is what a search orders runs by.
type Sort string

// The orders. Runs of equal keys are ordered by thread and run id, in the same direction.
const (
	SortStarted  Sort = "started"  // start of the run, in milliseconds since 1970
	SortDuration Sort = "duration" // milliseconds; -1 of a run that has not ended
	SortTokens   Sort = "tokens"   // input and output tokens of all models
)

// The parameters of a search beside the filter's.
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
	// After is the last run of the page before; nil is the beginning.
	After *Position
	Bounds
}

// Position is a run's place in an order.
type Position struct {
	Key             int64 // what Sort says
	ThreadID, RunID string
}

// Page is a page of runs.
type Page struct {
	Runs []Run
	// Next is the place of the last run; nil where no run follows it.
	Next *Position
}

// Run is a run as a search finds it. Times have milliseconds.
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
	// DurationMs is there once the run has ended, TimeToFirstTokenMs once it wrote text.
	DurationMs         *int64 `json:"durationMs,omitempty"`
	TimeToFirstTokenMs *int64 `json:"timeToFirstTokenMs,omitempty"`
	// Models are those that reported tokens, sorted.
	Models       agui.Strings `json:"models,omitempty"`
	InputTokens  int64        `json:"inputTokens"`
	OutputTokens int64        `json:"outputTokens"`
	// ToolCalls are the calls by tool.
	ToolCalls agui.StringMap[int64] `json:"toolCalls,omitempty"`
	// Interrupts are how many the run ended with, Messages how many the history has at its end.
	Interrupts   int    `json:"interrupts"`
	Messages     int    `json:"messages"`
	ErrorCode    string `json:"errorCode,omitempty"`
	ErrorMessage string `json:"errorMessage,omitempty"`
	// Rewrote says how the input departs from the parent's history, in the record's words.
	Rewrote []string `json:"rewrote,omitempty"`
	// Question and Reply are the first 200 characters of the user's last new message and of the agent's last text.
	Question string `json:"question,omitempty"`
	Reply    string `json:"reply,omitempty"`
}

// Key returns the run's place in an order.
func (r *Run) Key(by Sort) int64 {
	switch by {
	case SortDuration:
		if r.DurationMs == nil {
			return -1
		}
		return *r.DurationMs
	case SortTokens:
		return r.InputTokens + r.OutputTokens
	default:
		return r.StartedAt.UnixMilli()
	}
}

// ParseQuery reads a search of a tenant's runs. Bounds are the caller's. Errors are *ParameterError.
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
	if s.Limit, err = parseLimit(q, defaultLimit, maxLimit); err != nil {
		return s, err
	}
	if text := q.Get(ParamAfter); text != "" {
		if err := s.resume(q, tenant, text); err != nil {
			return s, err
		}
	}
	return s, nil
}

func parseLimit(q url.Values, fallback, most int) (int, error) {
	text := q.Get(ParamLimit)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, &ParameterError{ParamLimit, fmt.Sprintf("a whole number from 1 to %d", most), text}
	}
	return n, nil
}

// cursorVersion numbers the form of cursors and the meaning of filters: a cursor of another version is refused.
const cursorVersion = 1

// cursor is the text of ParamAfter. It holds the bounds that relative times stood for at the first page, so that all pages are of one range.
// It is no secret and no proof: a forged one names another place among the runs of the caller's own tenant.
type cursor struct {
	Version int    `json:"v"`
	Of      []byte `json:"of"` // binding of tenant, filter and order
	Since   int64  `json:"s,omitempty"`
	Until   int64  `json:"u,omitempty"`
	Key     int64  `json:"k"`
	Thread  string `json:"t"`
	Run     string `json:"r"`
}

// binding is a hash of what pages of one search share: the tenant, and the parameters as they were written.
func binding(q url.Values, tenant string) []byte {
	h := sha256.New()
	part := func(text string) {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(text)))
		_, _ = h.Write(size[:]) // a hash takes everything
		_, _ = h.Write([]byte(text))
	}
	part(tenant)
	for _, name := range QueryParams {
		if name == ParamAfter || name == ParamLimit {
			continue
		}
		values := slices.DeleteFunc(slices.Sorted(slices.Values(q[name])), func(v string) bool { return v == "" })
		for _, v := range values {
			part(name + "=" + v)
		}
	}
	return h.Sum(nil)[:12]
}

// Cursor returns the text of ParamAfter for the page behind a position, for the same parameters and tenant.
func (s *Query) Cursor(q url.Values, tenant string, next Position) (string, error) {
	c := cursor{Version: cursorVersion, Of: binding(q, tenant), Key: next.Key, Thread: next.ThreadID, Run: next.RunID}
	if !s.Since.IsZero() {
		c.Since = s.Since.UnixMilli()
	}
	if !s.Until.IsZero() {
		c.Until = s.Until.UnixMilli()
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encoding cursor: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(raw), nil
}

// resume goes on behind a cursor.
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
	if (c.Since != 0) != (!s.Since.IsZero()) || (c.Until != 0) != (!s.Until.IsZero()) {
		return bad("next of the page before")
	}
	if c.Since != 0 {
		s.Since = time.UnixMilli(c.Since).UTC()
	}
	if c.Until != 0 {
		s.Until = time.UnixMilli(c.Until).UTC()
	}
	s.After = &Position{c.Key, c.Thread, c.Run}
	return nil
}
