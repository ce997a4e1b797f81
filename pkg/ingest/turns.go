package ingest

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
)

// largeEvent is the size, in bytes, from which on events take turns for Kafka. A broker takes the requests of one connection one after another, so that
// small events of other tenants wait behind the large ones that are under way.
const largeEvent = 64 << 10

// turns bounds what each tenant has with Kafka of large events, in bytes. Tenants do not wait for each other.
type turns struct {
	each int64

	mu      sync.Mutex
	tenants map[string]*tenantTurns
}

// tenantTurns are those of a tenant that has events, or waits.
type tenantTurns struct {
	*semaphore.Weighted
	users int
}

func newTurns(each int) *turns { return &turns{each: int64(each), tenants: map[string]*tenantTurns{}} }

// take waits until a tenant may have an event of so many bytes under way. Call the result once it is acknowledged.
func (t *turns) take(ctx context.Context, tenant string, bytes int) (give func(), err error) {
	n := min(int64(bytes), t.each) // an input may have been written anew
	t.mu.Lock()
	of := t.tenants[tenant]
	if of == nil {
		of = &tenantTurns{Weighted: semaphore.NewWeighted(t.each)}
		t.tenants[tenant] = of
	}
	of.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if of.users--; of.users == 0 {
			delete(t.tenants, tenant)
		}
	}
	if err := of.Acquire(ctx, n); err != nil {
		leave()
		return nil, fmt.Errorf("waiting for a turn: %w", err)
	}
	return func() { of.Release(n); leave() }, nil
}
