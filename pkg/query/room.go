package query

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/internal/share"
	"github.com/skeinhq/skein/pkg/store"
)

const (
	// requestBytes is the approximate memory of a request without what it reads: net/http's buffers, goroutines and usual
	// headers.
	requestBytes = 24 << 10
	// memoryStep is how much memory one claim takes from the pool at once, so that not every row takes the pool's lock.
	memoryStep = 64 << 10
)

// room holds the budgets that the requests of all tenants share. By the rule of share.Pool, a tenant may hold as much
// as all tenants together leave free.
type room struct {
	// slots limits requests that work at once. A request holds no slot while it waits for the index, the brokers or a
	// timeline, writes to its caller or keeps a pace. Only the scan of /v1/verify keeps its slot while it reads.
	slots *share.Pool
	// records limits concurrent reads of skein.runs, since the memory for a record is unknown until it is read.
	records *share.Pool
	// memory limits what requests hold: their own overhead, rows, contents and folds.
	memory *front.Memory
	// patience is how long a request waits for its slots.
	patience time.Duration
}

func newRoom(cfg Config) *room {
	return &room{slots: share.NewPool(int64(cfg.Slots)), records: share.NewPool(int64(cfg.Slots)), patience: cfg.Wait,
		memory: &front.Memory{Pool: share.NewPool(cfg.readBytes())}}
}

// load returns the load of a new request of a tenant. It holds nothing yet.
func (r *room) load(tenant string) *load {
	return &load{room: r, tenant: tenant, lateAfter: r.patience, late: refuseSlot, kept: r.memory.Claim(tenant, 0),
		work: r.memory.Claim(tenant, memoryStep)}
}

// refuseSlot is load.late of a request that can still be refused.
func refuseSlot() error {
	return &front.Problem{Status: http.StatusTooManyRequests, Limit: "slots", Retry: time.Second,
		Detail: "the tenant's share of concurrent reads is used up; try again, with fewer requests at once"}
}

// load tracks the slot and memory that one request holds. Only take may be called from other goroutines, and no other
// method may run at the same time as take.
type load struct {
	*room
	tenant string
	slot   bool // whether it holds one
	// lateAfter is how long the request waits for a slot before it calls late. If late returns an error, the wait ends;
	// otherwise the request waits again, at the end of its tenant's queue. It leaves the queue before the call, because
	// late may write to a slow caller, and a slot granted during that time would be held unused.
	lateAfter time.Duration
	late      func() error
	// kept is the memory of the whole request; work is the memory of its work with the current slot.
	kept, work *front.Claim
}

// withSlot acquires a slot, calls f, and releases the slot and all memory that take took. If the request has a slot
// already, withSlot only calls f.
func (l *load) withSlot(ctx context.Context, f func() error) error {
	if l.slot {
		return f()
	}
	if err := l.acquire(ctx); err != nil {
		return err
	}
	defer l.end()
	return f()
}

// acquire acquires a slot, unless the request has one.
func (l *load) acquire(ctx context.Context) error {
	for !l.slot {
		wait, cancel := context.WithTimeout(ctx, l.lateAfter)
		err := l.slots.Wait(wait, l.tenant, 1)
		cancel()
		switch {
		case err == nil:
			l.slot = true
			return nil
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		default:
			err = l.late()
		}
		if err != nil {
			return fmt.Errorf("waiting for a slot: %w", err)
		}
	}
	return nil
}

// releaseSlot releases the slot and keeps the memory. Call it before waiting, or before writing to the caller.
func (l *load) releaseSlot() {
	if l.slot {
		l.slots.Give(l.tenant, 1)
	}
	l.slot = false
}

// pause releases the slot while f waits. If the request had a slot, pause acquires one again, even if f fails.
func (l *load) pause(ctx context.Context, f func() error) error {
	if !l.slot {
		return f()
	}
	l.releaseSlot()
	err := f()
	return cmp.Or(l.acquire(ctx), err)
}

// end releases everything except the memory that hold took.
func (l *load) end() {
	l.releaseSlot()
	l.work.Close()
}

// close releases everything.
func (l *load) close() {
	l.kept.Close()
	l.end()
}

// hold counts memory of the whole request. A negative number returns it to the pool at once, which never fails.
func (l *load) hold(bytes int64) error {
	if bytes < 0 {
		l.kept.Give(-bytes)
		return nil
	}
	return l.kept.Take(bytes)
}

// take takes memory for the current slot's work before it is allocated; a negative number releases it.
func (l *load) take(bytes int64) error { return l.work.Take(bytes) }

// fits reports whether a request may ever take this many bytes.
func (l *load) fits(bytes int64) bool { return bytes <= l.memory.Alone() }

// metered returns a context whose store reads count against the memory of the load. release gives back what these reads have taken so
// far, for callers that drop what they read.
func (l *load) metered(ctx context.Context) (_ context.Context, release func()) {
	var taken atomic.Int64
	return store.WithMeter(ctx, func(bytes int64) error {
		err := l.take(bytes)
		if err == nil {
			taken.Add(bytes)
		}
		return err
	}), func() { _ = l.take(-taken.Swap(0)) } // a release never fails
}
