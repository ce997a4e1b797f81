package clickhouse

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"golang.org/x/sync/errgroup"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/store"
)

// selectedRun is a row of the table runs as statements select it. Lineage does not select Record.
type selectedRun struct {
	ThreadID      string `ch:"thread_id"`
	RunID         string `ch:"run_id"`
	Version       uint64 `ch:"version"`
	Head          string `ch:"head"`
	Record        string `ch:"record"`
	OwnMessages   uint32 `ch:"own_messages"`
	InputMessages uint32 `ch:"input_messages"`
	UpdatedAt     int64  `ch:"at"` // Unix milliseconds
}

// run decodes a row with Head and Record.
func (r *selectedRun) run(tenant string) (store.Run, error) {
	decoded, err := store.DecodeRow(tenant, r.ThreadID, r.RunID, []byte(r.Head), []byte(r.Record))
	if err != nil {
		return store.Run{}, err
	}
	return store.Run{Run: *decoded, Version: int64(r.Version)}, nil
}

// runs reads rows of runs.
func (s *Store) runs(ctx context.Context, query string, args named) (rows []selectedRun, err error) {
	err = s.each(ctx, query, args, func(r row) error {
		var run selectedRun
		if err := r.ScanStruct(&run); err != nil {
			return err
		}
		rows = append(rows, run)
		return store.Metered(ctx, store.RowBytes, len(run.Head)+len(run.Record))
	})
	return rows, err
}

// Thread implements store.Reader.
func (s *Store) Thread(ctx context.Context, tenant, thread string) ([]store.Run, error) {
	rows, err := s.runs(ctx, selectThread, named{"tenant": tenant, "thread": thread})
	if err != nil {
		return nil, fmt.Errorf("reading thread: %w", err)
	}
	runs, err := decodeInOrder(rows, func(row *selectedRun) (store.Run, error) {
		r, err := row.run(tenant)
		r.Counts = &store.Counts{Messages: int(row.OwnMessages), InputMessages: int(row.InputMessages)}
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading thread: %w", err)
	}
	return runs, nil
}

// Lineage implements store.Reader.
func (s *Store) Lineage(ctx context.Context, tenant, thread string) ([]store.Run, error) {
	rows, err := s.runs(ctx, selectLineage, named{"tenant": tenant, "thread": thread})
	if err != nil {
		return nil, fmt.Errorf("reading lineage: %w", err)
	}
	runs, err := decodeInOrder(rows, func(row *selectedRun) (store.Run, error) {
		r, err := store.DecodeHead([]byte(row.Head))
		r.Tenant, r.ThreadID, r.RunID, r.Version = tenant, thread, row.RunID, int64(row.Version)
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading lineage: %w", err)
	}
	return runs, nil
}

// decodedAtOnce is how many rows one goroutine decodes.
const decodedAtOnce = 1000

// decodeInOrder decodes the rows of a thread and returns the runs in the order of Reader.Thread. It uses all processors, because
// decoding takes longer than reading.
func decodeInOrder(rows []selectedRun, decode func(*selectedRun) (store.Run, error)) ([]store.Run, error) {
	if len(rows) == 0 {
		return nil, store.ErrNotFound
	}
	decoded := make([]store.Run, len(rows))
	var decoding errgroup.Group
	decoding.SetLimit(runtime.GOMAXPROCS(0))
	for from := 0; from < len(rows); from += decodedAtOnce {
		decoding.Go(func() (err error) {
			for i := from; i < min(from+decodedAtOnce, len(rows)) && err == nil; i++ {
				decoded[i], err = decode(&rows[i])
				rows[i] = selectedRun{} // frees its texts, which are as large as the run
			}
			return err
		})
	}
	if err := decoding.Wait(); err != nil {
		return nil, err
	}
	order := make([]*store.Run, len(rows)) // sorting pointers is cheaper than moving large runs
	for i := range decoded {
		order[i] = &decoded[i]
	}
	slices.SortFunc(order, func(a, b *store.Run) int {
		return cmp.Or(cmp.Compare(a.Raw.First, b.Raw.First), cmp.Compare(a.RunID, b.RunID))
	})
	sorted := make([]store.Run, len(rows))
	for i, r := range order {
		sorted[i] = *r
	}
	return sorted, nil
}

// Run implements store.Reader.
func (s *Store) Run(ctx context.Context, tenant, thread, run string) (store.Run, error) {
	rows, err := s.runs(ctx, selectRun, named{"tenant": tenant, "thread": thread, "run": run})
	if err != nil {
		return store.Run{}, fmt.Errorf("reading run: %w", err)
	}
	if len(rows) == 0 {
		return store.Run{}, store.ErrNotFound
	}
	r, err := rows[0].run(tenant)
	if err != nil {
		return store.Run{}, fmt.Errorf("reading run: %w", err)
	}
	return r, nil
}

// Contents implements store.Reader. It returns only complete contents, of the versions of the given runs.
func (s *Store) Contents(ctx context.Context, tenant, thread string, runs []store.Run) (map[string]store.Content, error) {
	rows := make(map[string]*store.Run, len(runs))
	ids := make([]string, 0, len(runs))
	for i := range runs {
		if r := &runs[i]; r.Status != record.StatusRunning && r.Counts != nil {
			rows[r.RunID] = r
			ids = append(ids, r.RunID)
		}
	}
	answer := make(map[string]store.Content, len(ids))
	for _, part := range idChunks(ids) {
		if err := s.contents(ctx, named{"tenant": tenant, "thread": thread, "runs": part}, rows, answer); err != nil {
			return nil, fmt.Errorf("reading contents: %w", err)
		}
	}
	return answer, nil
}

// messageOf is a row of messages.
type messageOf struct {
	run   string
	input uint8
	agui.Message
}

// contents reads states and messages concurrently and adds complete contents to the answer. The order of the two reads does not
// matter, because rows are matched by version and counted.
func (s *Store) contents(ctx context.Context, args named, rows map[string]*store.Run, answer map[string]store.Content) error {
	states := map[string]json.RawMessage{}
	var messages []messageOf
	is := func(run string, version uint64) bool { return rows[run] != nil && rows[run].Version == int64(version) }
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return s.each(ctx, selectStates, args, func(r row) error {
			var run, state string
			var version uint64
			if err := r.Scan(&run, &version, &state); err != nil || !is(run, version) {
				return err
			}
			states[run] = nil // unchanged since the run's base
			if state != "" {
				states[run] = json.RawMessage(state)
			}
			return store.Metered(ctx, store.MessageBytes, len(state))
		})
	})
	g.Go(func() error {
		return s.each(ctx, selectMessages, args, func(r row) error {
			var m messageOf
			var version uint64
			var raw string
			if err := r.Scan(&m.run, &version, &m.input, &m.ID, &m.Role, &raw); err != nil || !is(m.run, version) {
				return err
			}
			m.Raw = json.RawMessage(raw)
			messages = append(messages, m)
			return store.Metered(ctx, store.MessageBytes, len(raw))
		})
	})
	if err := g.Wait(); err != nil {
		return err
	}
	read := make(map[string]store.Content, len(states))
	for run, state := range states {
		read[run] = store.Content{State: state}
	}
	for _, m := range messages {
		c, there := read[m.run]
		switch {
		case !there: // the state's row is not written yet
			continue
		case m.input != 0:
			c.InputMessages = append(c.InputMessages, m.Message)
		default:
			c.Messages = append(c.Messages, m.Message)
		}
		read[m.run] = c
	}
	for run, c := range read {
		if *rows[run].Counts == (store.Counts{Messages: len(c.Messages), InputMessages: len(c.InputMessages)}) {
			answer[run] = c
		}
	}
	return nil
}

// Holding implements store.Reader.
func (s *Store) Holding(ctx context.Context, tenant, thread string, messageIDs []string) (map[string]int64, error) {
	runs := map[string]int64{}
	for _, ids := range idChunks(messageIDs) {
		err := s.each(ctx, selectHolding, named{"tenant": tenant, "thread": thread, "ids": ids}, func(r row) error {
			var run string
			var version uint64
			err := r.Scan(&run, &version)
			runs[run] = int64(version)
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
	since := int64(math.MinInt64)
	if !q.Since.IsZero() {
		since = q.Since.UnixMilli()
	}
	limit := min(max(q.Limit, 1), 1000)
	words := []string{}
	for _, w := range q.Words {
		words = append(words, store.Folded(w))
	}
	args := named{
		"tenant": tenant, "prefix": q.Prefix, "after": q.After, "status": string(q.Status), "agent": q.Agent, "since": since,
		"archived": cmp.Or(q.Archived, search.ArchivedNo), "words": words,
		"limit": limit + 1, // one more than the page, to see whether there is a next one
	}
	threads := []store.Thread{}
	err := s.each(ctx, selectThreads, args, func(r row) error {
		var t store.Thread
		var runs, open, branches uint64
		var messages uint32
		if err := r.Scan(&t.ThreadID, &runs, &open, &branches, &t.StartedAt, &t.UpdatedAt,
			&t.LastRunID, &t.Status, &messages); err != nil {
			return err
		}
		t.Runs, t.OpenRuns, t.Branches, t.Messages = int(runs), int(open), int(branches), int(messages)
		t.StartedAt, t.UpdatedAt = t.StartedAt.UTC(), t.UpdatedAt.UTC()
		threads = append(threads, t)
		return nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("reading threads: %w", err)
	}
	next := ""
	if len(threads) > limit {
		threads = slices.Clip(threads[:limit])
		next = threads[limit-1].ThreadID
	}
	ids := make([]string, len(threads))
	for i, t := range threads {
		ids[i] = t.ThreadID
	}
	details, err := s.details(ctx, tenant, ids)
	if err != nil {
		return nil, "", err
	}
	for i := range threads {
		threads[i].Details = details[threads[i].ThreadID]
	}
	return threads, next, nil
}

// Details implements store.Reader.
func (s *Store) Details(ctx context.Context, tenant, thread string) (store.Details, error) {
	details, err := s.details(ctx, tenant, []string{thread})
	return details[thread], err
}

// details returns the details of those threads that have some.
func (s *Store) details(ctx context.Context, tenant string, threads []string) (map[string]store.Details, error) {
	details := map[string]store.Details{}
	for _, ids := range idChunks(threads) {
		err := s.each(ctx, selectDetails, named{"tenant": tenant, "threads": ids}, func(r row) error {
			var thread, name, value string
			err := r.Scan(&thread, &name, &value)
			d := details[thread]
			d.Set(name, value)
			details[thread] = d
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("reading details of threads: %w", err)
		}
	}
	return details, nil
}

// Interrupted implements store.Reader.
func (s *Store) Interrupted(ctx context.Context, tenant string, q store.InterruptQuery) ([]store.Run, *store.InterruptCursor, error) {
	limit := min(max(q.Limit, 1), 1000)
	args := named{
		"tenant": tenant, "agent": q.Agent, "at": q.After.At, "thread": q.After.ThreadID, "run": q.After.RunID,
		"limit": limit + 1, // one more than the page, to see whether there is a next one
	}
	rows, err := s.runs(ctx, selectInterrupted, args)
	if err != nil {
		return nil, nil, fmt.Errorf("reading interrupted runs: %w", err)
	}
	var next *store.InterruptCursor
	if len(rows) > limit {
		rows = rows[:limit]
		last := rows[limit-1]
		next = &store.InterruptCursor{At: last.UpdatedAt, ThreadID: last.ThreadID, RunID: last.RunID}
	}
	runs := make([]store.Run, len(rows))
	for i := range rows {
		if runs[i], err = rows[i].run(tenant); err != nil {
			return nil, nil, fmt.Errorf("reading interrupted runs: %w", err)
		}
	}
	return runs, next, nil
}

// Erasure implements store.Reader.
func (s *Store) Erasure(ctx context.Context, tenant, thread string) (store.Erasure, error) {
	var found []store.Erasure
	err := s.each(ctx, selectErasure, named{"tenant": tenant, "thread": thread}, func(r row) error {
		var e store.Erasure
		err := r.Scan(&e.Below, &e.At)
		e.At = e.At.UTC()
		found = append(found, e)
		return err
	})
	if err != nil {
		return store.Erasure{}, fmt.Errorf("reading erasure: %w", err)
	}
	if len(found) == 0 {
		return store.Erasure{}, store.ErrNotFound
	}
	return found[0], nil
}

// IndexedTo implements store.Reader. It never decreases, not even after an erasure: the erased events were indexed.
func (s *Store) IndexedTo(ctx context.Context, tenant string) (map[int32]int64, error) {
	to := map[int32]int64{}
	err := s.each(ctx, selectPositions, named{"tenant": tenant}, func(r row) error {
		var partition int32
		var next uint64
		if err := r.Scan(&partition, &next); err != nil {
			return err
		}
		to[partition] = int64(next)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading indexed positions: %w", err)
	}
	return to, nil
}

// named are a statement's parameters.
type named map[string]any

// row is the current row of an answer.
type row = driver.Rows

// each runs a query and calls f for every row.
func (s *Store) each(ctx context.Context, query string, args named, f func(row) error) error {
	return s.query(ctx, s.queryTimeout, nil, query, args, f)
}

// query is each with a time limit and settings.
func (s *Store) query(
	ctx context.Context, limit time.Duration, settings ch.Settings, query string, args named, f func(row) error,
) (err error) {
	ctx, cancel := s.reading(ctx, limit, settings)
	defer cancel()
	params := make([]any, 0, len(args))
	for name, v := range args {
		params = append(params, ch.Named(name, v))
	}
	rows, err := s.conn.Query(ctx, query, params...)
	if err != nil {
		return explain(err)
	}
	defer func() { err = explain(errors.Join(err, rows.Close())) }()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
