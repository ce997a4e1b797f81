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
	// requestBytes is about how much memory a request takes beside what it reads: net/http's buffers, goroutines and usual headers.
	requestBytes = 24 << 10
	// memoryStep is how much memory is taken from the pool at once, so that its lock is not asked for each row.
	memoryStep = 64 << 10
	// heavyPart is the part of the slots that are for heavy work: one in so many, beside the others, so that small reads wait for none of it.
	heavyPart = 4
)

// room is what the requests of all tenants share, by the rule of share.Pool: a tenant may hold as much as is left free.
type room struct {
	// slots are for work: a read takes one, and what computes for long or has the store or brokers read much one of heavy. A request that
	// waits, writes to its caller or keeps a pace holds none.
	slots, heavy *share.Pool
	// memory is what requests hold: themselves, rows, contents and folds.
	memory *front.Memory
	// patience is how long a request waits for its slots.
	patience time.Duration
}

func newRoom(cfg Config) *room {
	return &room{slots: share.NewPool(int64(cfg.Slots)), heavy: share.NewPool(max(1, int64(cfg.Slots)/heavyPart)),
		patience: cfg.Wait,
		memory:   &front.Memory{Pool: share.NewPool(cfg.readBytes())}}
}

// load returns what a request of a tenant holds, which is nothing yet.
func (r *room) load(tenant string) *load {
	return &load{room: r, tenant: tenant, kept: r.memory.Claim(tenant, 0), turn: r.memory.Claim(tenant, memoryStep)}
}

// load is what one request holds of the room. Its methods but take are for one goroutine, none of them while another may be in take.
type load struct {
	*room
	tenant string
	slot   *share.Pool // of which it holds one: slots, heavy, or nil
	// await waits for slots in the place of patience: of live streams, replays and proofs whose answer has begun, which cannot be refused any
	// more. They wait as long as they may last, and are bounded by themselves.
	await func(ready <-chan struct{}) error
	// kept is the memory of the whole request, turn that of its turn.
	kept, turn *front.Claim
}

// inTurn calls f, which reads what an answer takes, with a slot. Behind it nothing of what f has read is counted any more. If the request
// has one already, inTurn is f.
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

// begin takes a slot, unless the request has one.
func (l *load) begin(ctx context.Context) error {
	if l.slot != nil {
		return nil
	}
	return l.acquire(ctx, l.slots)
}

// work takes a slot of heavy work, in place of another one: for searches, proofs, dead letters, folding raw events and decoding large
// inputs.
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

// rest gives the slot back, and keeps the memory: for a request that waits, or writes what it has read.
func (l *load) rest() {
	if l.slot != nil {
		l.slot.Give(l.tenant, 1)
	}
	l.slot = nil
}

// end gives all back but what hold has taken.
func (l *load) end() {
	l.rest()
	l.free()
}

// close gives all back.
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

// take counts memory of the turn before it is taken; a negative number gives it back.
func (l *load) take(bytes int64) error { return l.turn.Take(bytes) }

// free gives the memory of the turn back.
func (l *load) free() { l.turn.Close() }

// fits reports whether a request may ever take so much memory.
func (l *load) fits(bytes int64) bool { return bytes <= l.memory.Alone() }

// metered returns a context whose reads of the store are counted.
func (l *load) metered(ctx context.Context) context.Context { return store.WithMeter(ctx, l.take) }
