package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/store"
)

// Thread implements store.Reader.
func (s *Store) Thread(ctx context.Context, tenant, thread string) ([]store.Run, error) {
	var runs []store.Run
	err := each(ctx, s.read, selectThread, []any{tenant, thread}, func(scan func(...any) error) error {
		r, err := scanRun(ctx, scan)
		runs = append(runs, r)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading thread: %w", err)
	}
	if len(runs) == 0 {
		return nil, store.ErrNotFound
	}
	return runs, nil
}

// Lineage implements store.Reader.
func (s *Store) Lineage(ctx context.Context, tenant, thread string) ([]store.Run, error) {
	var runs []store.Run
	err := each(ctx, s.read, selectLineage, []any{tenant, thread}, func(scan func(...any) error) error {
		var f store.Facts
		r, err := scanRun(ctx, func(dest ...any) error {
			return scan(append(dest, &f.ErrorCode, &f.ErrorMessage, &f.CancelledBy, &f.Asked, &f.Question, &f.Reply, &f.Resumed)...)
		})
		r.Facts = f
		runs = append(runs, r)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading lineage: %w", err)
	}
	if len(runs) == 0 {
		return nil, store.ErrNotFound
	}
	return runs, nil
}

// Run implements store.Reader.
func (s *Store) Run(ctx context.Context, tenant, thread, run string) (store.Run, error) {
	r, err := scanRun(ctx, s.read.QueryRowContext(ctx, selectRun, tenant, thread, run).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return store.Run{}, store.ErrNotFound
	}
	if err != nil {
		return store.Run{}, fmt.Errorf("reading run: %w", err)
	}
	return r, nil
}

// Contents implements store.Reader. It reads one snapshot.
func (s *Store) Contents(ctx context.Context, tenant, thread string, runs []store.Run) (_ map[string]store.Content, err error) {
	contents := make(map[string]store.Content, len(runs))
	tx, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("reading contents: %w", err)
	}
	defer rollback(tx, &err)
	for part := range slices.Chunk(runs, contentsPart) {
		if err := readContents(ctx, tx, contents, tenant, thread, part); err != nil {
			return nil, fmt.Errorf("reading contents: %w", err)
		}
	}
	return contents, nil
}

// readContents adds the contents of runs. A run has contents if it has a row of states.
func readContents(ctx context.Context, tx *sql.Tx, into map[string]store.Content, tenant, thread string, runs []store.Run) error {
	marks := strings.TrimSuffix(strings.Repeat("?,", len(runs)), ",")
	args := make([]any, 0, 2+len(runs))
	args = append(args, tenant, thread)
	versions := make(map[string]int64, len(runs))
	for i := range runs {
		args = append(args, runs[i].RunID)
		versions[runs[i].RunID] = runs[i].Version
	}
	err := each(ctx, tx, fmt.Sprintf(selectStates, marks), args, func(scan func(...any) error) error {
		var run string
		var version int64
		var state []byte
		if err := scan(&run, &version, &state); err != nil || version != versions[run] {
			return err
		}
		into[run] = store.Content{State: json.RawMessage(state)}
		return store.Metered(ctx, store.MessageBytes, len(state))
	})
	if err != nil {
		return err
	}
	return each(ctx, tx, fmt.Sprintf(selectMessages, marks), args, func(scan func(...any) error) error {
		var run string
		var input bool
		var m agui.Message
		var raw []byte
		if err := scan(&run, &input, &m.ID, &m.Role, &raw); err != nil {
			return err
		}
		m.Raw = raw
		c, ok := into[run]
		switch {
		case !ok: // of another version
			return nil
		case input:
			c.InputMessages = append(c.InputMessages, m)
		default:
			c.Messages = append(c.Messages, m)
		}
		into[run] = c
		return store.Metered(ctx, store.MessageBytes, len(raw))
	})
}

// Holding implements store.Reader.
func (s *Store) Holding(ctx context.Context, tenant, thread string, messageIDs []string) (map[string]int64, error) {
	runs := map[string]int64{}
	for part := range slices.Chunk(messageIDs, contentsPart) {
		args := []any{tenant, thread}
		for _, id := range part {
			args = append(args, id)
		}
		query := fmt.Sprintf(selectHolding, strings.TrimSuffix(strings.Repeat("?,", len(part)), ","))
		err := each(ctx, s.read, query, args, func(scan func(...any) error) error {
			var run string
			var version int64
			err := scan(&run, &version)
			runs[run] = version
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("looking for messages: %w", err)
		}
	}
	return runs, nil
}

// Threads implements store.Reader.
func (s *Store) Threads(ctx context.Context, tenant string, q store.ThreadQuery) ([]store.Thread, string, error) {
	since := int64(-1 << 63)
	if !q.Since.IsZero() {
		since = q.Since.UnixMilli()
	}
	limit := min(max(q.Limit, 1), 1000)
	folded := make([]string, len(q.Words))
	for i, w := range q.Words {
		folded[i] = store.Folded(w)
	}
	words, err := json.Marshal(folded)
	if err != nil { // impossible: they are texts
		return nil, "", fmt.Errorf("reading threads: %w", err)
	}
	args := []any{
		sql.Named("words", string(words)),
		sql.Named("archived", cmp.Or(q.Archived, search.ArchivedNo)),
		sql.Named("tenant", tenant),
		sql.Named("after", q.After),
		sql.Named("from", max(q.Prefix, q.After)),
		sql.Named("to", q.Prefix+"\xff"), // above all ids with the prefix: no UTF-8 text has this byte
		sql.Named("since", since),
		sql.Named("status", string(q.Status)),
		sql.Named("agent", q.Agent),
		sql.Named("limit", limit+1), // one more than the page, to see whether there is a next one
	}
	threads := []store.Thread{}
	err = each(ctx, s.read, selectThreads, args, func(scan func(...any) error) error {
		var t store.Thread
		var started, updated int64
		err := scan(&t.ThreadID, &t.Runs, &t.OpenRuns, &t.Branches, &started, &updated, &t.LastRunID, &t.Status, &t.Messages,
			&t.Title, &t.Archived)
		t.StartedAt, t.UpdatedAt = time.UnixMilli(started).UTC(), time.UnixMilli(updated).UTC()
		threads = append(threads, t)
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("reading threads: %w", err)
	}
	if len(threads) <= limit {
		return threads, "", nil
	}
	threads = threads[:limit]
	return threads, threads[limit-1].ThreadID, nil
}

// Details implements store.Reader.
func (s *Store) Details(ctx context.Context, tenant, thread string) (d store.Details, err error) {
	err = each(ctx, s.read, selectDetails, []any{tenant, thread}, func(scan func(...any) error) error {
		var name, value string
		err := scan(&name, &value)
		d.Set(name, value)
		return err
	})
	if err != nil {
		return store.Details{}, fmt.Errorf("reading details of thread: %w", err)
	}
	return d, nil
}

// Interrupted implements store.Reader. It compares parents in Go, because only records have them, and SQLite's JSON functions
// cut ids at a NUL.
func (s *Store) Interrupted(ctx context.Context, tenant string, q store.InterruptQuery) ([]store.Run, *store.InterruptCursor, error) {
	limit := min(max(q.Limit, 1), 1000)
	runs, after := []store.Run{}, q.After
	var next *store.InterruptCursor
	for {
		page, cursors, err := s.interrupted(ctx, tenant, q.Agent, after, limit+1)
		if err != nil {
			return nil, nil, fmt.Errorf("reading interrupted runs: %w", err)
		}
		for i, r := range page {
			after = cursors[i]
			open, err := s.open(ctx, tenant, r)
			if err != nil {
				return nil, nil, fmt.Errorf("looking for runs that continue a run: %w", err)
			}
			if !open {
				continue
			}
			if len(runs) == limit { // one more than the page, to see whether there is a next one
				return runs, next, nil
			}
			runs, next = append(runs, r), &store.InterruptCursor{At: after.At, ThreadID: after.ThreadID, RunID: after.RunID}
		}
		if len(page) <= limit {
			return runs, nil, nil
		}
	}
}

func (s *Store) interrupted(
	ctx context.Context, tenant, agent string, after store.InterruptCursor, limit int,
) ([]store.Run, []store.InterruptCursor, error) {
	args := []any{
		sql.Named("tenant", tenant), sql.Named("agent", agent), sql.Named("limit", limit),
		sql.Named("at", after.At), sql.Named("thread", after.ThreadID), sql.Named("run", after.RunID),
	}
	var runs []store.Run
	var cursors []store.InterruptCursor
	err := each(ctx, s.read, selectInterrupted, args, func(scan func(...any) error) error {
		var at int64
		r, err := scanRun(ctx, func(dest ...any) error { return scan(append(dest, &at)...) })
		runs, cursors = append(runs, r), append(cursors, store.InterruptCursor{At: at, ThreadID: r.ThreadID, RunID: r.RunID})
		return err
	})
	return runs, cursors, err
}

// open reports whether no run continues a run.
func (s *Store) open(ctx context.Context, tenant string, run store.Run) (bool, error) {
	open := true
	err := each(ctx, s.read, selectLater, []any{tenant, run.ThreadID, run.Raw.First}, func(scan func(...any) error) error {
		r, err := scanRun(ctx, scan)
		open = open && r.ParentRunID != run.RunID
		return err
	})
	return open, err
}

// Erasure implements store.Reader.
func (s *Store) Erasure(ctx context.Context, tenant, thread string) (store.Erasure, error) {
	var e store.Erasure
	var at int64
	err := s.read.QueryRowContext(ctx, selectErasure, tenant, thread).Scan(&e.Below, &at)
	if errors.Is(err, sql.ErrNoRows) {
		return store.Erasure{}, store.ErrNotFound
	}
	if err != nil {
		return store.Erasure{}, fmt.Errorf("reading erasure: %w", err)
	}
	e.At = time.UnixMilli(at).UTC()
	return e, nil
}

// Purged implements store.Reader. Deleted rows are overwritten (secure_delete) before Write returns.
func (s *Store) Purged(ctx context.Context, _, _ string) (bool, error) { return true, ctx.Err() }

// IndexedTo implements store.Reader.
func (s *Store) IndexedTo(ctx context.Context, tenant string) (map[int32]int64, error) {
	to := map[int32]int64{}
	err := each(ctx, s.read, selectIndexedTo, []any{sql.Named("tenant", tenant)}, func(scan func(...any) error) error {
		var partition int32
		var next int64
		if err := scan(&partition, &next); err != nil {
			return err
		}
		to[partition] = next
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading indexed positions: %w", err)
	}
	return to, nil
}

// queryer is a database or a transaction.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// each runs a query and calls f for every row.
func each(ctx context.Context, q queryer, query string, args []any, f func(scan func(...any) error) error) (err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
