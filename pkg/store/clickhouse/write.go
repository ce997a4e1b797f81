package clickhouse

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"golang.org/x/sync/errgroup"

	"github.com/skeinhq/skein/pkg/store"
)

// Follow implements store.Writer. It reads the ids again after it has written its own: if two indexers start at the same time
// with different topics, at least one fails.
func (s *Store) Follow(ctx context.Context, topicID string) error {
	followed, err := s.follows(ctx, topicID)
	if err == nil && !followed {
		if err = s.exec(ctx, "INSERT INTO sources (topic_id) VALUES (?)", topicID); err == nil {
			_, err = s.follows(ctx, topicID)
		}
	}
	if err != nil {
		return fmt.Errorf("asking ClickHouse which topic its rows are of: %w", err)
	}
	return nil
}

// follows reports whether the rows are of a topic, or returns ErrOtherTopic.
func (s *Store) follows(ctx context.Context, topicID string) (followed bool, err error) {
	err = s.each(ctx, selectSources, named{}, func(r row) error {
		var id string
		if err := r.Scan(&id); err != nil {
			return err
		}
		if id != topicID {
			return fmt.Errorf("%w: theirs has the id %s, this one %s", store.ErrOtherTopic, id, topicID)
		}
		followed = true
		return nil
	})
	return followed, err
}

// Write implements store.Writer. It runs several inserts, each durable when it returns, and stops at the first error. A repeated
// call sends the same blocks with the same tokens.
//
// Write first writes the contents, all tables concurrently, so that a visible sealed run has them. Then come the rows of runs; details of
// threads; deletions, once no row of runs refers to the deleted rows; erasures and positions, which promise that everything before them is
// written.
func (s *Store) Write(ctx context.Context, entries []store.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("writing %d records: %w", len(entries), err)
	}
	b, err := newBatch(entries)
	if err != nil {
		return fmt.Errorf("writing %d records: %w: %w", len(entries), store.ErrRefused, err)
	}
	var runs []*runRow
	for _, step := range []func() error{
		func() (err error) { runs, err = s.insertContents(ctx, b); return err },
		func() error { return insert(ctx, s, "runs", b.from, runs) },
		func() error { return insert(ctx, s, detailTable, b.from, b.details) },
		func() error { return s.delete(ctx, b) },
		func() error { return insert(ctx, s, "erasures", b.from, b.erasures) },
		func() error { return insert(ctx, s, "positions", b.from, b.positions) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("writing %d records (%s of skein.runs): %w", len(entries), b.from, err)
		}
	}
	return nil
}

// insertContents inserts the contents of runs, and builds the rows of runs at the same time.
func (s *Store) insertContents(ctx context.Context, b *batch) (runs []*runRow, err error) {
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() (err error) {
		if runs, err = b.runRows(); err != nil {
			return fmt.Errorf("%w: %w", store.ErrRefused, err)
		}
		return nil
	})
	all.Go(func() error { return insert(ctx, s, "messages", b.from, b.messages) })
	all.Go(func() error { return insert(ctx, s, "states", b.from, b.states) })
	all.Go(func() error { return insert(ctx, s, "tool_calls", b.from, b.toolCalls) })
	all.Go(func() error { return insert(ctx, s, "interrupts", b.from, b.interrupts) })
	all.Go(func() error { return insert(ctx, s, "answers", b.from, b.answers) })
	err = all.Wait()
	return runs, err
}

// insert writes rows of a table in blocks.
func insert[T any](ctx context.Context, s *Store, table, from string, rows []*T) error {
	for len(rows) > 0 {
		n := 1
		for bytes := sizeOf(rows[0]); n < len(rows) && n < s.blockRows; n++ {
			if bytes += sizeOf(rows[n]); bytes > s.blockBytes {
				break
			}
		}
		if err := insertBlock(ctx, s, table, from, rows[:n]); err != nil {
			return fmt.Errorf("inserting %d rows into %s: %w", n, table, explainInsert(err))
		}
		rows = rows[n:]
	}
	return nil
}

// sizeOf estimates a row's bytes on the wire.
func sizeOf(row any) (bytes int) {
	columns := reflect.ValueOf(row).Elem()
	for i := range columns.NumField() {
		bytes += 8
		if c := columns.Field(i); c.Kind() == reflect.String || c.Kind() == reflect.Slice {
			bytes += c.Len()
		}
	}
	return bytes
}

// insertBlock writes one block. The server stores it as one part or, after an error, not at all.
func insertBlock[T any](ctx context.Context, s *Store, table, from string, rows []*T) (err error) {
	ctx, cancel := s.writing(ctx, ch.Settings{"insert_deduplication_token": token(table, from, rows)})
	defer cancel()
	columns := columnsOf[T]()
	if ctx, err = s.withTypes(ctx, table, columns); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.types.Delete(table) // a migration may have changed the types
		}
	}()
	b, err := s.conn.PrepareBatch(ctx, "INSERT INTO "+table+" ("+strings.Join(columns, ", ")+")")
	if err != nil {
		return err
	}
	// After Send this does nothing; before it, the connection goes back to the pool.
	defer func() { err = errors.Join(err, b.Close()) }()
	values := make([]any, len(columns)) // like AppendStruct, but without looking up each field by name
	for _, r := range rows {
		row := reflect.ValueOf(r).Elem()
		for i := range values {
			values[i] = row.Field(i).Interface()
		}
		if err := b.Append(values...); err != nil {
			return fmt.Errorf("%w: %w", store.ErrRefused, err)
		}
	}
	return b.Send()
}

// token returns a block's deduplication token: the table, the offsets of the records, the number of rows and a hash of the rows. The
// server silently drops a block whose token it knows. The hash keeps blocks of a recreated topic, or of another topic set, apart from
// earlier blocks with the same offsets.
func token[T any](table, from string, rows []*T) string {
	h := sha256.New()
	var text []byte
	for _, r := range rows {
		columns := reflect.ValueOf(r).Elem()
		text = text[:0]
		for i := range columns.NumField() {
			switch c := reflect.Indirect(columns.Field(i)); { // maps and lists differ only if other columns do
			case c.Kind() == reflect.String:
				text = append(strconv.AppendInt(text, int64(c.Len()), 10), ':')
				text = append(text, c.String()...)
			case c.CanInt():
				text = strconv.AppendInt(text, c.Int(), 10)
			case c.Kind() == reflect.Bool:
				text = strconv.AppendBool(text, c.Bool())
			case c.CanUint():
				text = strconv.AppendUint(text, c.Uint(), 10)
			case c.Kind() == reflect.Struct:
				text = strconv.AppendInt(text, c.Interface().(time.Time).UnixMilli(), 10)
			case c.Kind() == reflect.Slice && c.Type().Elem().Kind() == reflect.Uint8:
				text = append(strconv.AppendInt(text, int64(c.Len()), 10), ':')
				text = append(text, c.Bytes()...)
			}
			text = append(text, ',')
		}
		_, _ = h.Write(text) // a hash takes everything
	}
	return fmt.Sprintf("%s/%s/%d/%x", table, from, len(rows), h.Sum(nil)[:16])
}

// columnsOf returns the columns of a row's type. An INSERT with named columns still works after a migration adds one.
func columnsOf[T any]() []string {
	t := reflect.TypeFor[T]()
	names := make([]string, t.NumField())
	for i := range names {
		names[i] = t.Field(i).Tag.Get("ch")
	}
	return names
}

// withTypes passes the types of a table's columns to the driver. Over HTTP the driver would otherwise request them before each
// insert; the native protocol includes them.
func (s *Store) withTypes(ctx context.Context, table string, columns []string) (context.Context, error) {
	if s.driver.Protocol != ch.HTTP {
		return ctx, nil
	}
	if types, ok := s.types.Load(table); ok {
		return ch.Context(ctx, ch.WithColumnNamesAndTypes(types.([]ch.ColumnNameAndType))), nil
	}
	of := map[string]string{}
	err := s.each(ctx, selectColumns, named{"table": table}, func(r row) error {
		var name, typ string
		err := r.Scan(&name, &typ)
		of[name] = typ
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("asking for the columns: %w", err)
	}
	types := make([]ch.ColumnNameAndType, len(columns))
	for i, name := range columns {
		if of[name] == "" {
			return nil, fmt.Errorf("%w (%s has no column %s)", ErrSchemaOld, table, name)
		}
		types[i] = ch.ColumnNameAndType{Name: name, Type: of[name]}
	}
	s.types.Store(table, types)
	return ch.Context(ctx, ch.WithColumnNamesAndTypes(types)), nil
}
