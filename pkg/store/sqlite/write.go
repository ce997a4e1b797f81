package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// Follow implements store.Writer.
func (s *Store) Follow(ctx context.Context, topicID string) error {
	if err := s.follow(ctx, topicID); err != nil {
		return fmt.Errorf("asking store which topic its rows are of: %w", err)
	}
	return nil
}

func (s *Store) follow(ctx context.Context, topicID string) (err error) {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer rollback(tx, &err)
	var id string
	err = tx.QueryRowContext(ctx, "SELECT topic_id FROM sources").Scan(&id)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		if _, err := tx.ExecContext(ctx, "INSERT INTO sources (topic_id) VALUES (?)", topicID); err != nil {
			return err
		}
		return tx.Commit()
	case err == nil && id != topicID:
		return fmt.Errorf("%w: theirs has the id %s, this one %s", store.ErrOtherTopic, id, topicID)
	}
	return err
}

// Write implements store.Writer. The entries are one transaction.
func (s *Store) Write(ctx context.Context, entries []store.Entry) (err error) {
	if len(entries) == 0 {
		return nil
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("writing %d records: %w", len(entries), err)
	}
	defer rollback(tx, &err)
	b := block{tx: tx, stmts: map[string]*sql.Stmt{}}
	for _, e := range entries {
		if err := b.add(ctx, e); err != nil {
			return fmt.Errorf("writing record %d:%d of skein.runs: %w", e.Partition, e.Version, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("writing %d records: %w", len(entries), err)
	}
	if slices.ContainsFunc(entries, func(e store.Entry) bool { return e.Erasure != nil }) {
		return s.truncateLog(ctx)
	}
	return nil
}

// truncateLog checkpoints and truncates the write-ahead log, which has pages from before an erasure. It fails while a reader uses an
// old snapshot; the caller then repeats Write, which changes no row and calls truncateLog again.
func (s *Store) truncateLog(ctx context.Context) error {
	var busy, frames, moved int
	if err := s.write.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &moved); err != nil {
		return fmt.Errorf("emptying the store's log after an erasure: %w", err)
	}
	if busy != 0 {
		return errors.New("emptying the store's log after an erasure: somebody reads from it")
	}
	return nil
}

// block writes entries in one transaction. Its prepared statements end with the transaction.
type block struct {
	tx    *sql.Tx
	stmts map[string]*sql.Stmt
}

// exec runs a statement, which it prepares once.
func (b *block) exec(ctx context.Context, statement string, args ...any) (sql.Result, error) {
	stmt := b.stmts[statement]
	if stmt == nil {
		var err error
		if stmt, err = b.tx.PrepareContext(ctx, statement); err != nil {
			return nil, fmt.Errorf("preparing statement: %w", err)
		}
		b.stmts[statement] = stmt
	}
	return stmt.ExecContext(ctx, args...)
}

// add replaces the rows of a run, unless the store has a newer version, or writes an erasure, a detail or a position.
func (b *block) add(ctx context.Context, e store.Entry) error {
	if e.Erasure != nil {
		_, err := b.exec(ctx, upsertErasure, e.Tenant, e.ThreadID, e.Erasure.Below, e.Erasure.At.UnixMilli(), e.Version)
		return err
	}
	if e.Detail != nil {
		_, err := b.exec(ctx, upsertDetail, e.Tenant, e.ThreadID, e.Detail.Name, e.Version, e.Detail.Value == "", e.Detail.Value,
			store.Folded(e.Detail.Value))
		return err
	}
	if e.Position != nil {
		_, err := b.exec(ctx, upsertPosition, e.Partition, e.Position.Next, e.Version)
		return err
	}
	// Replaces a row of an equal version too: a newer binary may build another row from the same record.
	const ofRun = " WHERE tenant = ? AND thread_id = ? AND run_id = ?"
	if _, err := b.exec(ctx, "DELETE FROM runs"+ofRun+" AND version <= ?", e.Tenant, e.ThreadID, e.RunID, e.Version); err != nil {
		return err
	}
	fresh, err := b.addRun(ctx, e)
	if err != nil || !fresh {
		return err
	}
	for _, table := range contentTables {
		if _, err := b.exec(ctx, "DELETE FROM "+table+ofRun, e.Tenant, e.ThreadID, e.RunID); err != nil {
			return err
		}
	}
	if e.Run == nil || e.Run.Status == record.StatusRunning {
		return nil
	}
	if err := b.addMessages(ctx, e, 0, e.Run.Messages); err != nil {
		return err
	}
	if err := b.addMessages(ctx, e, 1, e.Run.InputMessages); err != nil {
		return err
	}
	if err := b.addMessages(ctx, e, 2, store.ErrorTexts(e.Run)); err != nil {
		return err
	}
	if err := b.addToolCalls(ctx, e); err != nil {
		return err
	}
	state := sql.NullString{String: string(e.Run.State), Valid: e.Run.State != nil}
	_, err = b.exec(ctx, insertState, e.Tenant, e.ThreadID, e.RunID, e.Version, state)
	return err
}

func (b *block) addMessages(ctx context.Context, e store.Entry, input int, messages []agui.Message) error {
	i := 0
	for rows := range slices.Chunk(messages, messageRows) {
		args := make([]any, 0, 9*messageRows)
		for _, m := range rows {
			args = append(args, e.Tenant, e.ThreadID, e.RunID, input, i, e.Version, m.ID, m.Role, string(m.Raw))
			i++
		}
		if _, err := b.exec(ctx, insertMessage+strings.Repeat(", "+messageValues, len(rows)-1), args...); err != nil {
			return err
		}
	}
	return nil
}

// addToolCalls writes a run's tool calls.
func (b *block) addToolCalls(ctx context.Context, e store.Entry) error {
	c := store.ContentFactsOf(e.Run)
	for i, t := range c.ToolCalls {
		called := sql.NullInt64{}
		if t.CalledAt != nil {
			called = sql.NullInt64{Int64: t.CalledAt.UnixMilli(), Valid: true}
		}
		if _, err := b.exec(ctx, insertToolCall, e.Tenant, e.ThreadID, e.RunID, i, e.Version, t.ID, t.Name, t.MessageID, t.Made,
			e.Run.Agent, c.Model, e.Run.StartedAt.UnixMilli(),
			t.ArgumentBytes, t.Answered, t.ResultBytes, t.Failed, t.Error, t.Pending, called, t.DurationMs); err != nil {
			return err
		}
	}
	return nil
}
