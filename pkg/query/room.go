package query

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

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
	// slots are for work: a read takes one, and what computes for long or has the store or brokers read much one of heavy. A request that waits, writes
	// to its caller or keeps a pace holds none.
	slots, heavy *share.Pool
	// memory is what requests hold: themselves, rows, contents and folds, in bytes.
	memory *share.Pool
	// patience is how long a request waits for its slots.
	patience time.Duration
}

func newRoom(cfg Config) *room {
	return &room{slots: share.NewPool(int64(cfg.Slots)), heavy: share.NewPool(max(1, int64(cfg.Slots)/heavyPart)), memory: share.NewPool(cfg.readBytes()), patience: cfg.Wait}
}

// load is what one request holds of the room. Its methods but take are for one goroutine, none of them while another may be in take.
type load struct {
	*room
	tenant string
	slot   *share.Pool // of which it holds one: slots, heavy, or nil
	// await waits for slots in the place of patience: of live streams, replays and proofs whose answer has begun, which cannot be refused any more. They
	// wait as long as they may last, and are bounded by themselves.
	await func(ready <-chan struct{}) error

	mu sync.Mutex
	// used is the memory that was asked for, taken what of the pool that took; kept is what of it hold has taken.
	used, taken, kept int64
}

// errNoRoom is in what take returns where there is no room for more.
var errNoRoom = errors.New("there is no room")

// busy refuses a request whose tenant holds its share.
func busy(limit, detail string) error {
	return &refusal{status: http.StatusTooManyRequests, retryAfter: 1, detail: detail, extensions: map[string]any{"limit": limit}}
}

// inTurn calls f, which reads what an answer takes, with a slot. Behind it nothing of what f has read is counted any more. If the request has one
// already, inTurn is f.
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

// work takes a slot of heavy work, in place of another one: for searches, proofs, dead letters, folding raw events and decoding large inputs.
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
			return busy("slots", "the tenant's share of concurrent reads is used up; try again, with fewer requests at once")
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
	l.mu.Lock()
	l.kept = 0
	l.mu.Unlock()
	l.end()
}

// hold counts memory that is held beyond the turn; a negative number gives it back. The error is a refusal with errNoRoom.
func (l *load) hold(bytes int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if more := l.used + bytes - l.taken; more > 0 {
		if !l.memory.Take(l.tenant, more) {
			return l.noRoom(bytes)
		}
		l.taken += more
	}
	l.kept += bytes
	l.used += bytes
	if bytes < 0 && l.slot == nil {
		l.giveBack()
	}
	return nil
}

// free gives the memory back but for what hold has taken.
func (l *load) free() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.giveBack()
}

func (l *load) giveBack() {
	l.used = l.kept
	if over := l.taken - l.kept; over > 0 {
		l.memory.Give(l.tenant, over)
		l.taken = l.kept
	}
}

// take counts memory before it is taken; a negative number has it used again, and free gives it back. The error is a refusal with errNoRoom.
func (l *load) take(bytes int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used += bytes
	more := l.used - l.taken
	if more <= 0 {
		return nil
	}
	more = max(more, memoryStep)
	if l.memory.Take(l.tenant, more) {
		l.taken += more
		return nil
	}
	l.used -= bytes
	return l.noRoom(bytes)
}

// noRoom refuses memory that the pool does not give.
func (l *load) noRoom(bytes int64) error {
	if l.used+bytes > l.memory.Alone() {
		return errors.Join(errNoRoom, &refusal{
			status: http.StatusUnprocessableEntity, extensions: map[string]any{"limit": "memory"},
			detail: fmt.Sprintf("the answer takes more than the %d bytes of memory that one tenant may have here: ask for less of the thread (limit, ancestorsOf, one run), or have the operator raise --memory", l.memory.Alone()),
		})
	}
	return errors.Join(errNoRoom, busy("memory", "the tenant's share of memory is used up; try again, with fewer requests at once"))
}

// fits reports whether a request may ever take so much memory.
func (l *load) fits(bytes int64) bool { return bytes <= l.memory.Alone() }

// metered returns a context whose reads of the store are counted.
func (l *load) metered(ctx context.Context) context.Context { return store.WithMeter(ctx, l.take) }
