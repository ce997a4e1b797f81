package query

import (
	"context"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/skeinhq/skein/pkg/store"
)

// watch polls the index's progress for waiting requests. All requests that wait wake at the same moments and share one
// query a tenant, however many they are.
type watch struct {
	store   store.Reader
	poll    time.Duration
	queries singleflight.Group
}

// next returns the index's progress for a tenant after the next poll. It returns nil if ctx ends before.
func (w *watch) next(ctx context.Context, tenant string) (map[int32]int64, error) {
	now := time.Now()
	if err := sleep(ctx, now.Truncate(w.poll).Add(w.poll).Sub(now)); err != nil {
		return nil, err
	}
	to, err, _ := w.queries.Do(tenant, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWait) // others share the query
		defer cancel()
		return w.store.IndexedTo(ctx, tenant)
	})
	if err != nil {
		return nil, err
	}
	return to.(map[int32]int64), nil
}
