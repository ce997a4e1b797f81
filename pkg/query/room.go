package query

import (
	"context"
	"fmt"
	"net/http"
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
	// heavyPart is the divisor that gives the number of slots for heavy work. These are separate slots, so that small
	// reads never wait for heavy work.
	heavyPart = 4
)

// room holds the budgets that the requests of all tenants share. By the rule of share.Pool, a tenant may hold as much
// as all tenants together leave free.
type room struct {
	// slots bounds reads. heavy bounds work that computes for long or makes the store or brokers read much. A request that
	// waits, writes to its caller or keeps a pace holds no slot.
	slots, heavy *share.Pool
	// memory bounds what requests hold: their own overhead, rows, contents and folds.
	memory *front.Memory
	// patience is how long a request waits for its slots.
	patience time.Duration
}

func newRoom(cfg Config) *room {
	return &room{slots: share.NewPool(int64(cfg.Slots)), heavy: share.NewPool(max(1, int64(cfg.Slots)/heavyPart)),
		patience: cfg.Wait,
		memory:   &front.Memory{Pool: share.NewPool(cfg.readBytes())}}
}

// load returns the load of a new request of a tenant. It holds nothing yet.
func (r *room) load(tenant string) *load {
	return &load{room: r, tenant: tenant, kept: r.memory.Claim(tenant, 0), turn: r.memory.Claim(tenant, memoryStep)}
}

// load tracks the slot and memory that one request holds. Only take may be called from other goroutines, and no other
// method may run at the same time as take.
type load struct {
	*room
	tenant string
	slot   *share.Pool // the pool of the slot that it holds: slots, heavy, or nil
	// await, if set, replaces patience in waits for slots. Live streams, replays and verifications set it: their answer
	// has begun, so they can no longer be refused. They wait until their own time limit.
	await func(ready <-chan struct{}) error
	// kept is the memory of the whole request; turn is the memory of the current slot's work.
	kept, turn *front.Claim
}

// inTurn acquires a slot, calls f, and releases the slot and all memory that take took. If the request has a slot
// already, inTurn only calls f.
func (l *load) inTurn(ctx context.Context, f func() error) error {
	if l.slot != nil {
		return f()
	}
	if err := l.begin(ctx); err != nil {
		return err
	}
	defer l.end()
	return f()
}

// begin acquires a slot, unless the request has one.
func (l *load) begin(ctx context.Context) error {
	if l.slot != nil {
		return nil
	}
	return l.acquire(ctx, l.slots)
}

// work acquires a slot for heavy work in place of any other slot. Searches, verifications, dead letters, folding raw
// events and decoding large inputs need one.
func (l *load) work(ctx context.Context) error {
	if l.slot == l.heavy {
		return nil
	}
	l.rest()
	return l.acquire(ctx, l.heavy)
}

func (l *load) acquire(ctx context.Context, of *share.Pool) error {
	var err error
	if l.await != nil {
		place := of.Queue(l.tenant, 1)
		if err = l.await(place.Ready()); err != nil {
			place.Leave()
		}
	} else {
		wait, cancel := context.WithTimeout(ctx, l.patience)
		defer cancel()
		if err = of.Wait(wait, l.tenant, 1); err != nil && ctx.Err() == nil {
			return &front.Problem{Status: http.StatusTooManyRequests, Limit: "slots", Retry: time.Second, Detail: "the tenant's share of concurrent reads is used up; try again, with fewer requests at once"}
		}
	}
	if err != nil {
		return fmt.Errorf("waiting for a slot: %w", err)
	}
	l.slot = of
	return nil
}

// rest releases the slot and keeps the memory. Call it before waiting, or before writing what was read.
func (l *load) rest() {
	if l.slot != nil {
		l.slot.Give(l.tenant, 1)
	}
	l.slot = nil
}

// end releases everything except the memory that hold took.
func (l *load) end() {
	l.rest()
	l.free()
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
func (l *load) take(bytes int64) error { return l.turn.Take(bytes) }

// free releases the memory that take took.
func (l *load) free() { l.turn.Close() }

// fits reports whether a request may ever take this many bytes.
func (l *load) fits(bytes int64) bool { return bytes <= l.memory.Alone() }

// metered returns a context in which reads of the store take memory of the load.
func (l *load) metered(ctx context.Context) context.Context { return store.WithMeter(ctx, l.take) }
