package query

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/skeinhq/skein/internal/share"
	"github.com/skeinhq/skein/pkg/store"
)

const (
	// lightBytes is how much memory a read takes before it counts as a large one.
	lightBytes = 2 << 20
	// memoryStep is how much memory is taken from the pool at once, so that its lock is not asked for each row.
	memoryStep = 64 << 10
)

// room is what the requests of all tenants share. Each pool is shared by the rule of share.Pool: a tenant may hold as much as is left free.
type room struct {
	// reads are the requests that work at the same time, large those of them that read much, searches those that have the store read much. A
	// request that waits, writes to its caller or keeps a pace holds none.
	reads, large, searches *share.Pool
	// processors are the requests that have much to compute and wait for nothing meanwhile: live streams and replays that fold raw events, inputs that are
	// decoded. A tenant that is alone has half of the process's processors for them, so that what others ask for waits behind none.
	processors *share.Pool
	// memory is what requests hold of rows, contents and folds, in bytes.
	memory *share.Pool
	// waits are the requests that wait for their turn or for the index.
	waits *share.Pool
	// streams are the live streams that are open.
	streams *share.Pool
	// patience is how long a request waits for its turn.
	patience time.Duration
}

func newRoom(cfg Config) *room {
	return &room{
		reads: share.NewPool(int64(cfg.Reads)), large: share.NewPool(int64(cfg.LargeReads)), searches: share.NewPool(int64(cfg.LargeReads)),
		processors: share.NewPool(int64(runtime.GOMAXPROCS(0))),
		memory:     share.NewPool(int64(cfg.ReadBytes)), waits: share.NewPool(int64(cfg.Waiting)), streams: share.NewPool(int64(cfg.Streams)), patience: cfg.Wait,
	}
}

// load is what one request holds of the room. Its methods but take are for one goroutine, none of them while another may be in take.
type load struct {
	*room
	tenant string
	reads  bool
	works  bool
	// largeOf is the pool whose turn for a large read it holds: large, searches, or nil.
	largeOf *share.Pool
	// await waits for a turn in the place of patience: of live streams, replays and proofs whose answer has begun, which cannot be refused any more. They
	// wait as long as they may last, and are bounded by themselves.
	await func(ready <-chan struct{}) error

	mu sync.Mutex
	// used is the memory that was asked for, taken what of the pool that took; kept is what of it hold has taken.
	used, taken, kept int64
}

// errLarge says that a request reads too much for one of the tenant's ordinary turns.
var errLarge = errors.New("the read is a large one")

// errNoRoom is in what take returns where there is no room for more.
var errNoRoom = errors.New("there is no room")

// busy refuses a request whose tenant holds its share.
func busy(limit, detail string) error {
	return &refusal{status: http.StatusTooManyRequests, retryAfter: 1, detail: detail, extensions: map[string]any{"limit": limit}}
}

// inTurn calls f, which reads what an answer takes, in one of the tenant's turns. Where f turns out to be a large read while no turn is free for
// one, it is called again once there is: what it has read is dropped meanwhile, and it writes nothing before it has read. Behind it nothing of what f has read is counted any more.
// Within a turn inTurn is f.
func (l *load) inTurn(ctx context.Context, f func() error) error {
	if l.reads {
		return f()
	}
	if err := l.begin(ctx); err != nil {
		return err
	}
	defer l.end()
	err := f()
	if errors.Is(err, errLarge) {
		l.free()
		if err := l.enlarge(ctx); err != nil {
			return err
		}
		err = f()
	}
	return err
}

// begin takes one of the tenant's turns.
func (l *load) begin(ctx context.Context) error {
	if l.reads {
		return nil
	}
	err := l.acquire(ctx, l.room.reads, "reads", "the tenant's share of concurrent reads is used up; try again, with fewer requests at once")
	l.reads = err == nil
	return err
}

// work takes a processor for what has much to compute. Give it back by rest before anything is waited for.
func (l *load) work(ctx context.Context) error {
	if l.works {
		return nil
	}
	err := l.acquire(ctx, l.processors, "processors", "the tenant's share of processors for raw events and large inputs is used up; try again, with fewer requests at once")
	l.works = err == nil
	return err
}

// enlarge takes one of the tenant's turns for large reads. While it waits for that it gives the other one back.
func (l *load) enlarge(ctx context.Context) error {
	return l.enlargeBy(ctx, l.room.large, "large-reads", "another large read of yours is under way (a long thread, raw events or a proof); try again, with one after another")
}

// search is enlarge for what has the store read much, searches and statistics: they have turns of their own, as proofs and replays keep theirs for long.
func (l *load) search(ctx context.Context) error {
	return l.enlargeBy(ctx, l.room.searches, "searches", "another search of yours is under way; try again, with one after another")
}

func (l *load) enlargeBy(ctx context.Context, of *share.Pool, limit, detail string) error {
	if l.largeOf != nil {
		return nil
	}
	if of.Take(l.tenant, 1) {
		l.largeOf = of
		return nil
	}
	l.rest() // small reads must not wait behind one that waits
	if err := l.acquire(ctx, of, limit, detail); err != nil {
		return err
	}
	l.largeOf = of
	return l.begin(ctx)
}

// acquire waits for a slot of a pool.
func (l *load) acquire(ctx context.Context, of *share.Pool, limit, detail string) error {
	if of.Take(l.tenant, 1) {
		return nil
	}
	if l.await != nil {
		place := of.Queue(l.tenant, 1)
		if err := l.await(place.Ready()); err != nil {
			place.Leave()
			return fmt.Errorf("waiting for a turn: %w", err)
		}
		return nil
	}
	done, err := l.queue()
	if err != nil {
		return err
	}
	defer done()
	wait, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	err = of.Wait(wait, l.tenant, 1)
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("waiting for a turn: %w", ctx.Err())
	case err != nil:
		return busy(limit, detail)
	}
	return nil
}

// queue lets a request wait; call the result when it waits no more.
func (l *load) queue() (done func(), err error) {
	if !l.waits.Take(l.tenant, 1) {
		return nil, busy("waiting", "the tenant's share of waiting requests is used up; try again, with fewer requests at once")
	}
	return func() { l.waits.Give(l.tenant, 1) }, nil
}

// rest gives the turn and the processor back, and keeps the memory: for a request that waits, or writes what it has read.
func (l *load) rest() {
	if l.reads {
		l.room.reads.Give(l.tenant, 1)
	}
	if l.largeOf != nil {
		l.largeOf.Give(l.tenant, 1)
	}
	if l.works {
		l.processors.Give(l.tenant, 1)
	}
	l.reads, l.largeOf, l.works = false, nil, false
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

// hold counts memory that is held beyond the turn, and that makes no read a large one; a negative number gives it back. The error is a refusal
// with errNoRoom.
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
	if bytes < 0 && !l.reads {
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

// take counts memory before it is taken; a negative number has it used again, and free gives it back. What makes a read a large one takes a turn for
// those where one is free. The error is errLarge where none is, or outside of a turn, or it is a refusal with errNoRoom.
func (l *load) take(bytes int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if bytes <= 0 {
		l.used += bytes
		return nil
	}
	if l.used+bytes > lightBytes+l.kept && l.largeOf == nil {
		if !l.reads || !l.room.large.Take(l.tenant, 1) {
			return errLarge
		}
		l.largeOf = l.room.large
	}
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
			status: http.StatusUnprocessableEntity, extensions: map[string]any{"limit": "read-memory"},
			detail: fmt.Sprintf("the answer takes more than the %d bytes of memory that one tenant may have here: ask for less of the thread (limit, ancestorsOf, one run), or have the operator raise --read-memory", l.memory.Alone()),
		})
	}
	return errors.Join(errNoRoom, busy("read-memory", "the tenant's share of memory for reads is used up; try again, with fewer requests at once"))
}

// fits reports whether a request may ever take so much memory.
func (l *load) fits(bytes int64) bool { return bytes <= l.memory.Alone() }

// metered returns a context whose reads of the store are counted.
func (l *load) metered(ctx context.Context) context.Context { return store.WithMeter(ctx, l.take) }
