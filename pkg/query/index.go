package query

import (
	"context"
	"errors"
	"fmt"

	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/store"
)

// errIndex marks errors of the lineage store, so that a 503 can name it.
var errIndex = errors.New("the lineage store")

// index wraps the lineage store and marks its errors except store.ErrNotFound and those of the request's own meter.
type index struct{ of store.Reader }

func marked[T any](v T, err error) (T, error) {
	if err != nil && !errors.Is(err, store.ErrNotFound) && !isNoRoom(err) && !errors.Is(err, search.ErrTooMuch) {
		err = fmt.Errorf("%w: %w", errIndex, err)
	}
	return v, err
}

func (i index) Thread(ctx context.Context, tenant, thread string) ([]store.Run, error) {
	return marked(i.of.Thread(ctx, tenant, thread))
}

func (i index) Lineage(ctx context.Context, tenant, thread string) ([]store.Run, error) {
	return marked(i.of.Lineage(ctx, tenant, thread))
}

func (i index) Run(ctx context.Context, tenant, thread, run string) (store.Run, error) {
	return marked(i.of.Run(ctx, tenant, thread, run))
}

func (i index) Contents(ctx context.Context, tenant, thread string, runs []store.Run) (map[string]store.Content, error) {
	return marked(i.of.Contents(ctx, tenant, thread, runs))
}

func (i index) Holding(ctx context.Context, tenant, thread string, messageIDs []string) (map[string]int64, error) {
	return marked(i.of.Holding(ctx, tenant, thread, messageIDs))
}

func (i index) Threads(ctx context.Context, tenant string, q store.ThreadQuery) ([]store.Thread, string, error) {
	threads, next, err := i.of.Threads(ctx, tenant, q)
	_, err = marked(0, err)
	return threads, next, err
}

func (i index) Interrupted(ctx context.Context, tenant string, q store.InterruptQuery) ([]store.Run, *store.InterruptCursor, error) {
	runs, next, err := i.of.Interrupted(ctx, tenant, q)
	_, err = marked(0, err)
	return runs, next, err
}

func (i index) Search(ctx context.Context, tenant string, q search.Query) (search.Page, error) {
	return marked(i.of.Search(ctx, tenant, q))
}

func (i index) Statistics(ctx context.Context, tenant string, q search.Statistics) (search.Table, error) {
	return marked(i.of.Statistics(ctx, tenant, q))
}

func (i index) Erasure(ctx context.Context, tenant, thread string) (store.Erasure, error) {
	return marked(i.of.Erasure(ctx, tenant, thread))
}

func (i index) Purged(ctx context.Context, tenant, thread string) (bool, error) {
	return marked(i.of.Purged(ctx, tenant, thread))
}

func (i index) IndexedTo(ctx context.Context, tenant string) (map[int32]int64, error) {
	return marked(i.of.IndexedTo(ctx, tenant))
}

func (i index) Ping(ctx context.Context) error {
	_, err := marked(0, i.of.Ping(ctx))
	return err
}
