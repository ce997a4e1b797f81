package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	sqlitedriver "modernc.org/sqlite"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/store"
)

// selectFound selects runs in the order of thread and start, the other two in the order of start, from a position on. scan checks
// conditions on members without a column in Go, since one machine has few runs.
const (
	foundColumns = `SELECT record, error_code, error_message, cancelled_by, asked, question, reply,
    :words = '' OR status <> 'running' AND EXISTS (
        SELECT 1 FROM messages m
        WHERE m.tenant = r.tenant AND m.thread_id = r.thread_id AND m.run_id = r.run_id AND m.version = r.version
          AND skein_has_words(m.raw, :words))
    OR EXISTS (SELECT 1 FROM thread_details d WHERE ` + ofThread + ` AND d.name = 'title'
        AND NOT EXISTS (SELECT 1 FROM json_each(iif(:words = '', '[]', :words)) w WHERE instr(d.folded, w.value) = 0))
FROM runs r
WHERE tenant = :tenant AND deleted = 0 AND thread_id >= :from AND thread_id < :to
  AND (:archived = '' OR (:archived = 'yes') = EXISTS (SELECT 1 FROM thread_details d WHERE ` + ofThread + ` AND d.name = 'archived'))`

	ofThread = `d.tenant = r.tenant AND d.thread_id = r.thread_id AND d.deleted = 0`

	selectFound = foundColumns + ` ORDER BY thread_id, raw_first, run_id`

	selectFoundAscending = foundColumns + ` AND started_at >= :since AND started_at < :until
  AND (started_at, thread_id, run_id) > (:key, :thread, :run) ORDER BY started_at, thread_id, run_id`

	selectFoundDescending = foundColumns + ` AND started_at >= :since AND started_at < :until
  AND (started_at, thread_id, run_id) < (:key, :thread, :run) ORDER BY started_at DESC, thread_id DESC, run_id DESC`
)

// init registers skein_has_words(raw, words), which reports whether a message's text has all words, a JSON array of folded ones.
func init() {
	sqlitedriver.MustRegisterDeterministicScalarFunction("skein_has_words", 2,
		func(_ *sqlitedriver.FunctionContext, args []driver.Value) (driver.Value, error) {
			raw, _ := args[0].(string)
			words, _ := args[1].(string)
			var m agui.Message
			var list []string
			if err := errors.Join(json.Unmarshal([]byte(raw), &m), json.Unmarshal([]byte(words), &list)); err != nil {
				return nil, fmt.Errorf("looking for words in a message: %w", err)
			}
			text := store.Folded(store.TextOf(m))
			for _, w := range list {
				if !strings.Contains(text, w) {
					return int64(0), nil
				}
			}
			return int64(1), nil
		})
}

// found is a run that a filter selects.
type found struct {
	search.Run
	rewrote string // search.Regeneration, search.Edit or ""
	usage   []record.TokenUsage
}

// errEnough ends a scan early.
var errEnough = errors.New("enough")

// scan calls f for each run that a filter selects, and returns search.ErrTooMuch after maxRows rows. Only selectFound has the order that
// siblings needs.
func (s *Store) scan(
	ctx context.Context, tenant string, q search.Filter, maxRows int64, query string, after search.Position, f func(found) error,
) error {
	words := ""
	if len(q.Words) > 0 {
		folded := make([]string, len(q.Words))
		for i, w := range q.Words {
			folded[i] = store.Folded(w)
		}
		raw, err := json.Marshal(folded)
		if err != nil {
			return err
		}
		words = string(raw)
	}
	since, until := int64(math.MinInt64), int64(math.MaxInt64)
	if !q.Since.IsZero() {
		since = q.Since.UnixMilli()
	}
	if !q.Until.IsZero() {
		until = q.Until.UnixMilli()
	}
	args := []any{sql.Named("tenant", tenant), sql.Named("words", words), sql.Named("from", q.Prefix), sql.Named("to", q.Prefix+"\xff"),
		sql.Named("archived", q.Archived)}
	if query != selectFound {
		args = append(args, sql.Named("since", since), sql.Named("until", until),
			sql.Named("key", after.Key), sql.Named("thread", after.ThreadID), sql.Named("run", after.RunID))
	}
	rows := int64(0)
	asked := siblings{}
	err := each(ctx, s.read, query, args, func(scan func(...any) error) error {
		if rows++; rows > maxRows {
			return search.ErrTooMuch
		}
		var text []byte
		var facts store.Facts
		var hasWords bool
		if err := scan(&text, &facts.ErrorCode, &facts.ErrorMessage, &facts.CancelledBy, &facts.Asked, &facts.Question, &facts.Reply,
			&hasWords); err != nil {
			return err
		}
		r, err := record.DecodeRun(text)
		if err != nil {
			return fmt.Errorf("decoding row: %w", err)
		}
		one := found{Run: store.Found(r, facts), rewrote: asked.add(r, facts.Asked), usage: r.Stats.Usage}
		at := one.StartedAt.UnixMilli()
		hasWords = hasWords || q.HasWords(r.ThreadID) || q.HasWords(r.RunID)
		if !hasWords || at < since || at >= until || q.AsksAgain() && one.rewrote != q.Rewrote ||
			q.Pending && len(r.PendingToolCalls) == 0 || !selects(q, &one.Run) {
			return nil
		}
		return f(one)
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// bounded calls f within the time limit of bounds, or returns search.ErrTooMuch.
func bounded(ctx context.Context, b search.Bounds, f func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, b.Time)
	defer cancel()
	err := f(within)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", search.ErrTooMuch, err)
	}
	return err
}

// selects reports whether a run meets a filter's conditions, except for time, words and siblings.
func selects(f search.Filter, r *search.Run) bool {
	for _, l := range f.Labels {
		if v, has := r.Labels[l.Key]; !has || !l.Any && v != l.Value {
			return false
		}
	}
	_, tool := r.ToolCalls[f.Tool]
	return (len(f.Statuses) == 0 || slices.Contains(f.Statuses, r.Status)) &&
		(f.Agent == "" || r.Agent == f.AgentName()) &&
		(f.Depth == nil || f.Depth.Min <= r.Depth && r.Depth <= f.Depth.Max) &&
		(f.Tool == "" || tool) &&
		(f.Model == "" || slices.Contains(r.Models, f.Model)) &&
		(f.Rewrote == "" || f.AsksAgain() || slices.Contains(r.Rewrote, f.Rewrote)) &&
		(f.Error == "" || r.Status == record.StatusError && (f.Error == search.ErrorAny || r.ErrorCode == f.Error))
}

// siblings has the runs of one thread so far: by parent, the hashes of their questions (store.Facts.Asked).
type siblings struct {
	thread string
	asked  map[string]map[string]bool
}

// add returns search.Regeneration or search.Edit if a run is one of a sibling, else "". Call it in the order of threads and starts.
func (s *siblings) add(r *record.Run, asked string) string {
	if s.asked == nil || s.thread != r.ThreadID {
		s.thread, s.asked = r.ThreadID, map[string]map[string]bool{}
	}
	if asked == "" || r.SpawnedBy != "" {
		return ""
	}
	before := s.asked[r.ParentRunID]
	switch {
	case before == nil:
		s.asked[r.ParentRunID] = map[string]bool{asked: true}
		return ""
	case before[asked]:
		return search.Regeneration
	}
	before[asked] = true
	return search.Edit
}

// Search implements store.Reader.
func (s *Store) Search(ctx context.Context, tenant string, q search.Query) (search.Page, error) {
	query, after := selectFound, search.Position{}
	inOrder := q.Sort == search.SortStarted && !q.AsksAgain()
	switch {
	case inOrder && q.Ascending:
		query, after.Key = selectFoundAscending, math.MinInt64
	case inOrder:
		query, after.Key = selectFoundDescending, math.MaxInt64
	}
	if q.After != nil {
		after = *q.After
	}
	compare := func(a, b search.Position) int {
		c := cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.ThreadID, b.ThreadID), cmp.Compare(a.RunID, b.RunID))
		if !q.Ascending {
			return -c
		}
		return c
	}
	position := func(r *search.Run) search.Position {
		return search.Position{Key: r.Key(q.Sort), ThreadID: r.ThreadID, RunID: r.RunID}
	}
	runs := []search.Run{}
	// runs grows to twice the page; then cut drops the second half.
	cut := func() error {
		slices.SortFunc(runs, func(a, b search.Run) int { return compare(position(&a), position(&b)) })
		if len(runs) <= q.Limit+1 {
			return nil
		}
		free := len(runs) - (q.Limit + 1)
		runs = runs[:q.Limit+1]
		return store.Metered(ctx, -free*store.RowBytes, 0)
	}
	err := bounded(ctx, q.Bounds, func(within context.Context) error {
		return s.scan(within, tenant, q.Filter, q.Rows, query, after, func(r found) error {
			if q.After != nil && compare(position(&r.Run), *q.After) <= 0 {
				return nil
			}
			if err := store.Metered(ctx, store.RowBytes, 0); err != nil {
				return err
			}
			runs = append(runs, r.Run)
			switch {
			case inOrder && len(runs) > q.Limit:
				return errEnough
			case len(runs) > 2*(q.Limit+1):
				return cut()
			}
			return nil
		})
	})
	if err == nil {
		err = cut()
	}
	if err != nil {
		return search.Page{}, fmt.Errorf("searching runs: %w", err)
	}
	page := search.Page{Runs: runs}
	if len(runs) > q.Limit { // one more than the page, to see whether there is a next one
		page.Runs = slices.Clip(runs[:q.Limit])
		next := position(&page.Runs[q.Limit-1])
		page.Next = &next
	}
	return page, nil
}
