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
		w := newWatch(index, 50*time.Millisecond)
		before := map[int32]int64{3: 0}
		var all sync.WaitGroup
		for i := range 2000 {
			tenant := []string{"acme", "umbrella"}[i%2]
			all.Go(func() {
				to, err := w.next(t.Context(), tenant, before, time.Minute)
				if err != nil || to[3] != 7 {
					t.Errorf("it is at %v: %v", to, err)
				}
			})
		}
		time.Sleep(time.Second)
		index.set(7, nil)
		all.Wait()
		if n := index.n["acme"]; n < 19 || n > 22 {
			t.Errorf("asked %d times in a second", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		n := index.n["acme"]
		if time.Sleep(time.Minute); index.n["acme"] != n || len(w.tenants) != 0 {
			t.Error("it looks while nobody waits")
		}
	})
}

func TestWatch_EndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := &looked{n: map[string]int{}}
		w := newWatch(index, 50*time.Millisecond)
		before := map[int32]int64{3: 0}
		begun := time.Now()
		if to, err := w.next(t.Context(), "acme", before, time.Second); err != nil || to[3] != 0 || time.Since(begun) != time.Second {
			t.Errorf("after %v it is at %v: %v", time.Since(begun), to, err)
		}
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if _, err := w.next(ctx, "acme", before, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that leaves gets %v", err)
		}
		away := errors.New("away")
		index.set(0, away)
		if _, err := w.next(t.Context(), "acme", before, time.Minute); !errors.Is(err, away) {
			t.Errorf("where the store is away: %v", err)
		}
		index.set(0, nil)
		time.Sleep(time.Second)
		if to, err := w.next(t.Context(), "acme", before, time.Second); err != nil || to[3] != 0 {
			t.Errorf("once it is back: %v, %v", to, err)
		}
		time.Sleep(time.Second)
	})
}
