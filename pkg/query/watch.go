package query

import (
	"context"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/skeinhq/skein/pkg/store"
)

// watch polls the index's progress for requests that wait for it. All of them poll at the same moments, and overlapping
// queries are one query.
type watch struct {
	store   store.Reader
	poll    time.Duration
	queries singleflight.Group
}

// next returns the index's progress after the next poll. If ctx ends before, it returns the cause at once.
func (w *watch) next(ctx context.Context) (map[int32]int64, error) {
	now := time.Now()
	if err := sleep(ctx, now.Truncate(w.poll).Add(w.poll).Sub(now)); err != nil {
		return nil, err
	}
	query := w.queries.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWait) // others share the query
		defer cancel()
		return w.store.IndexedTo(ctx, everyTenant)
	})
	select {
	case r := <-query:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(map[int32]int64), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
