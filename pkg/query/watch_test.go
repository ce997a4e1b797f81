package query

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skeinhq/skein/pkg/store"
)

// looked is an index that counts how often it is asked.
type looked struct {
	store.Reader
	mu   sync.Mutex
	n    map[string]int
	next int64
	err  error
}

func (l *looked) IndexedTo(_ context.Context, tenant string) (map[int32]int64, error) {
	time.Sleep(time.Millisecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n[tenant]++
	return map[int32]int64{3: l.next}, l.err
}

func (l *looked) set(next int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next, l.err = next, err
}

func TestWatch_LooksOnceForAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := &looked{n: map[string]int{}}
		w := &watch{store: index, poll: 50 * time.Millisecond}
		var all sync.WaitGroup
		for range 2000 {
			all.Go(func() {
				for {
					if to, err := w.next(t.Context()); err != nil || to[3] == 7 {
						if err != nil {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		time.Sleep(time.Second)
		index.set(7, nil)
		all.Wait()
		if n := index.n[everyTenant]; n < 19 || n > 22 {
			t.Errorf("asked %d times in a second", n)
		}
	})
}

func TestWatch_EndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := &looked{n: map[string]int{}}
		w := &watch{store: index, poll: 50 * time.Millisecond}
		for _, stays := range []time.Duration{time.Millisecond, 50*time.Millisecond - time.Microsecond} { // before and during the query
			ctx, leave := context.WithTimeout(t.Context(), stays)
			begun := time.Now()
			if _, err := w.next(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != stays {
				t.Errorf("a caller that leaves after %v gets this after %v: %v", stays, time.Since(begun), err)
			}
			leave()
		}
		away := errors.New("away")
		index.set(0, away)
		if _, err := w.next(t.Context()); !errors.Is(err, away) {
			t.Errorf("where the store is away: %v", err)
		}
	})
}
