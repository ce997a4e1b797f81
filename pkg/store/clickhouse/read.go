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
	"golang.org/x/sync/errgroup"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// Thread implements store.Reader.
func (s *Store) Thread(ctx context.Context, tenant, thread string) ([]store.Run, error) {
	var runs []store.Run
	err := s.each(ctx, selectThread, named{"tenant": tenant, "thread": thread}, scanRun(ctx, &runs))
	if err != nil {
		return nil, fmt.Errorf("reading thread: %w", err)
	}
	if len(runs) == 0 {
		return nil, store.ErrNotFound
	}
	return runs, nil
}

// Lineage implements store.Reader. Of a thread that has a row from before there were heads, it reads the records.
func (s *Store) Lineage(ctx context.Context, tenant, thread string) ([]store.Run, error) {
	var decoded []*headChunk
	var decoding errgroup.Group
	decoding.SetLimit(runtime.GOMAXPROCS(0))
	chunk := &headChunk{}
	handOver := func() {
		c := chunk
		decoded, chunk = append(decoded, c), &headChunk{}
		decoding.Go(func() error { return c.decode(tenant, thread) })
	}
	old := false
	err := s.each(ctx, selectLineage, named{"tenant": tenant, "thread": thread}, func(scan scan) error {
		var h headRow
		if err := scan(&h.run, &h.version, &h.text); err != nil {
			return err
		}
		if old = old || h.text == ""; old {
			return nil
		}
		if chunk.rows = append(chunk.rows, h); len(chunk.rows) == headsAtOnce {
			handOver()
		}
		return store.Metered(ctx, store.RowBytes, len(h.text))
	})
	handOver()
	if err := errors.Join(err, decoding.Wait()); err != nil {
		return nil, fmt.Errorf("reading lineage: %w", err)
	}
	if old {
		return s.Thread(ctx, tenant, thread)
	}
	var sorted []*store.Run // runs are large, and would be moved many times
	for _, c := range decoded {
		for i := range c.runs {
			sorted = append(sorted, &c.runs[i])
		}
	}
	if len(sorted) == 0 {
		return nil, store.ErrNotFound
	}
	slices.SortFunc(sorted, func(a, b *store.Run) int {
		return cmp.Or(cmp.Compare(a.Raw.First, b.Raw.First), cmp.Compare(a.RunID, b.RunID))
	})
	runs := make([]store.Run, len(sorted))
	for i, r := range sorted {
		runs[i] = *r
	}
	return runs, nil
}

// headsAtOnce is how many heads are decoded while the next ones are read: decoding takes longer than reading.
const headsAtOnce = 1000

// headRow is a row of lineage.sql.
type headRow struct {
	run, text string
	version   uint64
}

// headChunk is some rows, and then their runs.
type headChunk struct {
	rows []headRow
	runs []store.Run
}

func (c *headChunk) decode(tenant, thread string) error {
	c.runs = make([]store.Run, 0, len(c.rows))
	for _, h := range c.rows {
		r, err := store.DecodeHead([]byte(h.text))
		if err != nil {
			return err
		}
		r.Tenant, r.ThreadID, r.RunID, r.Version = tenant, thread, h.run, int64(h.version)
		c.runs = append(c.runs, r)
	}
	c.rows = nil // the texts are as large as the runs
	return nil
}

// Run implements store.Reader.
func (s *Store) Run(ctx context.Context, tenant, thread, run string) (store.Run, error) {
	var runs []store.Run
	err := s.each(ctx, selectRun, named{"tenant": tenant, "thread": thread, "run": run}, scanRun(ctx, &runs))
	if err != nil {
		return store.Run{}, fmt.Errorf("reading run: %w", err)
	}
	if len(runs) == 0 {
		return store.Run{}, store.ErrNotFound
	}
	return runs[0], nil
}

// scanRun appends a row of runs.
func scanRun(ctx context.Context, runs *[]store.Run) func(scan) error {
	return func(scan scan) error {
		var version uint64
		var text string
		if err := scan(&version, &text); err != nil {
			return err
		}
		if err := store.Metered(ctx, store.RowBytes, len(text)); err != nil {
			return err
		}
		r, err := record.DecodeRun([]byte(text))
		if err != nil {
			return fmt.Errorf("decoding row: %w", err)
		}
		*runs = append(*runs, store.Run{Run: *r, Version: int64(version)})
		return nil
	}
}

// contents is what was read of a run's contents.
type contents struct {
	store.Content
	version    uint64
	own, input uint32 // how many messages there must be
	state      bool   // its row is there
}

// whole reports whether all rows of the version were there.
func (c *contents) whole() bool {
	return c.state && len(c.Messages) == int(c.own) && len(c.InputMessages) == int(c.input)
}

// Contents implements store.Reader. A run's contents are of one version, whole or not in the answer.
func (s *Store) Contents(ctx context.Context, tenant, thread string, runs []string) (map[string]store.Content, error) {
	answer := make(map[string]store.Content, len(runs))
	for _, ids := range idChunks(runs) {
		read, err := s.contents(ctx, named{"tenant": tenant, "thread": thread, "runs": ids})
		if err != nil {
			return nil, fmt.Errorf("reading contents: %w", err)
		}
		for id, c := range read {
			if c.whole() {
				answer[id] = c.Content
			}
		}
	}
	return answer, nil
}

// stateOf and messageOf are rows as they come.
type (
	stateOf struct {
		run, state string
		version    uint64
	}
	messageOf struct {
		run     string
		version uint64
		input   uint8
		agui.Message
	}
)

// contents asks the three tables at the same time. Which of them answers first does not matter: rows
// belong together by their version, and are counted.
func (s *Store) contents(ctx context.Context, args named) (map[string]*contents, error) {
	of := map[string]*contents{}
	var states []stateOf
	var messages []messageOf
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return s.each(ctx, selectSealed, args, func(scan scan) error {
			var run string
			c := &contents{}
			if err := scan(&run, &c.version, &c.own, &c.input); err != nil {
				return err
			}
			c.Version = int64(c.version)
			of[run] = c
			return nil
		})
	})
	g.Go(func() error {
		return s.each(ctx, selectStates, args, func(scan scan) error {
			var r stateOf
			if err := scan(&r.run, &r.version, &r.state); err != nil {
				return err
			}
			states = append(states, r)
			return store.Metered(ctx, store.MessageBytes, len(r.state))
		})
	})
	g.Go(func() error {
		return s.each(ctx, selectMessages, args, func(scan scan) error {
			var r messageOf
			var raw string
			err := scan(&r.run, &r.version, &r.input, &r.ID, &r.Role, &raw)
			if err != nil {
				return err
			}
			r.Raw = json.RawMessage(raw)
			messages = append(messages, r)
			return store.Metered(ctx, store.MessageBytes, len(raw))
		})
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for _, r := range states {
		if c := of[r.run]; c != nil && c.version == r.version {
			c.state = true
			if r.state != "" {
				c.State = json.RawMessage(r.state)
			}
		}
	}
	for _, r := range messages {
		switch c := of[r.run]; {
		case c == nil || c.version != r.version:
		case r.input != 0:
			c.InputMessages = append(c.InputMessages, r.Message)
		default:
			c.Messages = append(c.Messages, r.Message)
		}
	}
	return of, nil
}

// Holding implements store.Reader.
func (s *Store) Holding(ctx context.Context, tenant, thread string, messageIDs []string) (map[string]int64, error) {
	runs := map[string]int64{}
	for _, ids := range idChunks(messageIDs) {
		err := s.each(ctx, selectHolding, named{"tenant": tenant, "thread": thread, "ids": ids}, func(scan scan) error {
			var run string
			var version uint64
			err := scan(&run, &version)
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
	args := named{
		"tenant": tenant, "prefix": q.Prefix, "after": q.After, "status": string(q.Status), "agent": q.Agent, "since": since,
		"limit": limit + 1, // one more tells whether there is a next page
	}
	threads := []store.Thread{}
	err := s.each(ctx, selectThreads, args, func(scan scan) error {
		var t store.Thread
		var runs, open, branches uint64
		var messages uint32
		if err := scan(&t.ThreadID, &runs, &open, &branches, &t.StartedAt, &t.UpdatedAt,
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
	if len(threads) <= limit {
		return threads, "", nil
	}
	return slices.Clip(threads[:limit]), threads[limit-1].ThreadID, nil
}

// Interrupted implements store.Reader.
func (s *Store) Interrupted(ctx context.Context, tenant string, q store.InterruptQuery) ([]store.Run, *store.InterruptCursor, error) {
	limit := min(max(q.Limit, 1), 1000)
	args := named{
		"tenant": tenant, "agent": q.Agent, "at": q.After.At, "thread": q.After.ThreadID, "run": q.After.RunID,
		"limit": limit + 1, // one more tells whether there is a next page
	}
	runs, ends := []store.Run{}, []int64{}
	err := s.each(ctx, selectInterrupted, args, func(scan scan) error {
		var at int64
		err := scanRun(ctx, &runs)(func(dest ...any) error { return scan(append(dest, &at)...) })
		ends = append(ends, at)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("reading interrupted runs: %w", err)
	}
	if len(runs) <= limit {
		return runs, nil, nil
	}
	last := runs[limit-1]
	return slices.Clip(runs[:limit]), &store.InterruptCursor{At: ends[limit-1], ThreadID: last.ThreadID, RunID: last.RunID}, nil
}

// Erasure implements store.Reader.
func (s *Store) Erasure(ctx context.Context, tenant, thread string) (store.Erasure, error) {
	var found []store.Erasure
	err := s.each(ctx, selectErasure, named{"tenant": tenant, "thread": thread}, func(scan scan) error {
		var e store.Erasure
		err := scan(&e.Below, &e.At)
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

// IndexedTo implements store.Reader. It never goes back: where runs were erased, their events have
// been indexed all the same.
func (s *Store) IndexedTo(ctx context.Context, tenant string) (map[int32]int64, error) {
	to := map[int32]int64{}
	err := s.each(ctx, selectPositions, named{"tenant": tenant}, func(scan scan) error {
		var partition int32
		var next uint64
		if err := scan(&partition, &next); err != nil {
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

// scan reads the columns of a row.
type scan = func(dest ...any) error

// each runs a query and calls f for every row.
func (s *Store) each(ctx context.Context, query string, args named, f func(scan) error) error {
	return s.eachWith(ctx, s.opts.QueryTimeout, nil, query, args, f)
}

// eachWith is each with a limit of time and settings of its own.
func (s *Store) eachWith(ctx context.Context, limit time.Duration, settings ch.Settings, query string, args named, f func(scan) error) (err error) {
	ctx, cancel := s.readingWithin(ctx, limit, settings)
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
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
