package query

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/skeinhq/skein/pkg/store"
)

// watch polls the index's progress for waiting requests. It polls once for all requests of a tenant, and one tenant
// after another, so that the store has one such query at a time, however many requests wait. It polls only while a
// request waits.
type watch struct {
	store store.Reader
	poll  time.Duration

	mu      sync.Mutex
	tenants map[string]*watched
}

// watched is the known progress for one tenant.
type watched struct {
	waiting int
	to      map[int32]int64
	err     error
	// changed is closed when to or err changes.
	changed chan struct{}
}

func newWatch(r store.Reader, poll time.Duration) *watch {
	return &watch{store: r, poll: poll, tenants: map[string]*watched{}}
}

// next waits for at most atMost until the index's progress for a tenant differs from since. It returns the progress.
func (w *watch) next(ctx context.Context, tenant string, since map[int32]int64, atMost time.Duration) (map[int32]int64, error) {
	over := time.NewTimer(atMost)
	defer over.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.tenants[tenant]
	if t == nil {
		t = &watched{to: since, changed: make(chan struct{})}
		if w.tenants[tenant] = t; len(w.tenants) == 1 {
			go w.run()
		}
	}
	t.waiting++
	defer func() { t.waiting-- }()
	for t.err == nil && maps.Equal(t.to, since) {
		changed := t.changed
		w.mu.Unlock()
		var err error
		timeout := false
		select {
		case <-changed:
		case <-over.C:
			timeout = true
		case <-ctx.Done():
			err = fmt.Errorf("waiting for the index: %w", ctx.Err())
		}
		w.mu.Lock()
		if err != nil {
			return nil, err
		}
		if timeout {
			return since, nil
		}
	}
	return t.to, t.err
}

// run polls until no request waits.
func (w *watch) run() {
	for {
		time.Sleep(w.poll)
		w.mu.Lock()
		tenants := make([]string, 0, len(w.tenants))
		for tenant, t := range w.tenants {
			if t.waiting == 0 {
				delete(w.tenants, tenant)
				continue
			}
			tenants = append(tenants, tenant)
		}
		done := len(w.tenants) == 0
		w.mu.Unlock()
		if done {
			return
		}
		for _, tenant := range tenants {
			w.look(tenant)
		}
	}
}

// look reads the progress for one tenant from the store.
func (w *watch) look(tenant string) {
	ctx, cancel := context.WithTimeout(context.Background(), recordWait)
	defer cancel()
	to, err := w.store.IndexedTo(ctx, tenant)
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.tenants[tenant]
	if err == nil && t.err == nil && maps.Equal(to, t.to) {
		return
	}
	if t.err = err; err == nil {
		t.to = to
	}
	close(t.changed)
	t.changed = make(chan struct{})
}
