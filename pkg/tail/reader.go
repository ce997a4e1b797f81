package tail

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// batchBytes is the approximate size of the records that one call of Next returns.
	batchBytes = 256 << 10
	// slowAfter is how long a reader may take between two calls of Next. If it takes longer and its next record has left the
	// ring, it is slow. If it takes less, a burst was larger than the ring, and the reader catches up from the log.
	slowAfter = 10 * time.Second
)

// Reader returns the records of one thread from an offset on. It is not safe for concurrent use.
type Reader struct {
	tail *Tail
	p    *partition
	key  string
	// next is the offset of the next record to return; end is the end of the log when the reader was made.
	next, end int64
	since     time.Time     // of FollowSince: the ring lacks no record that is not older
	wake      chan struct{} // buffered: one signal is enough for any number of records
	thread    *thread
	lastAsked time.Time
	away      bool // Away of the last batch
	// attached: at some moment the ring had every record from next on. Since then thread.evicted shows what has left the ring.
	attached bool
	catchUp  *catchUp // nil while the ring has the next record
}

// Batch is the result of one call of Next.
type Batch struct {
	// Records are the thread's, in offset order: events and everything else with its key. They are shared with other
	// readers: do not change them.
	Records []*kgo.Record
	// Through is an offset: every record of the thread below it has been returned.
	Through int64
	// Away means that no broker has answered for a while. A later batch without it means that brokers answer again.
	Away bool
}

// End is the end of the log when the reader was made.
func (r *Reader) End() int64 { return r.end }

// Through is an offset: every record of the thread below it has been returned.
func (r *Reader) Through() int64 { return r.next }

// Next waits for the next records of the thread. A batch without records means that the reader has reached End, or that Away has changed.
// The error is ErrSlow, ErrGone, ErrClosed, the context's or Kafka's. Any but the context's is final for this reader; a new one may
// continue from Through. After the context's error, Next may be called again; a reader that waits to read older records from the log keeps
// its place in the queue meanwhile.
func (r *Reader) Next(ctx context.Context) (Batch, error) {
	for {
		b, wait, err := r.look()
		if err != nil {
			return Batch{}, err
		}
		if !wait {
			r.lastAsked = time.Now()
			return b, nil
		}
		if r.catchUp != nil {
			had := r.next
			if b, err = r.catchUp.read(ctx, r); err != nil {
				return Batch{}, err
			}
			if len(b.Records) > 0 || b.Away != r.away || had < r.end && r.next >= r.end {
				r.away = b.Away
				r.lastAsked = time.Now()
				return b, nil
			}
			continue
		}
		select {
		case <-r.wake:
			r.lastAsked = time.Now() // a reader that waits keeps up
		case <-ctx.Done():
			return Batch{}, ctx.Err()
		}
	}
}

// look returns the next records from the ring. If the ring does not have them, it starts a catch-up.
func (r *Reader) look() (_ Batch, wait bool, _ error) {
	away := r.tail.isAway()
	p := r.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return Batch{}, false, p.err
	}
	g := p.ring
	if r.overtakes() {
		return Batch{}, true, nil
	}
	if r.next >= g.start {
		r.attached = true
	}
	if !r.attached || r.thread.evicted > r.next {
		if r.attached && time.Since(r.lastAsked) > slowAfter {
			r.tail.metrics.slow.Inc()
			return Batch{}, false, ErrSlow
		}
		r.attached = false
		if r.catchUp == nil {
			r.catchUp = r.tail.catchUp(r)
		}
		return Batch{}, true, nil
	}
	r.endCatchUp()
	b := Batch{Records: r.thread.from(r.next, batchBytes), Through: g.next, Away: away}
	if n := len(b.Records); n > 0 && b.Records[n-1] != r.thread.records[len(r.thread.records)-1] {
		b.Through = b.Records[n-1].Offset + 1
	}
	b.Through = max(b.Through, r.next)
	wait = len(b.Records) == 0 && (r.next >= r.end || b.Through < r.end) && away == r.away
	r.next, r.away = b.Through, away
	return b, wait, nil
}

// overtakes reports whether the reader reads on from the log to its End, because the ring is new and has not got as far as the reader's
// next record. If no slot is free, the reader waits for the ring. The partition's lock is held.
func (r *Reader) overtakes() bool {
	if g := r.p.ring; g.next >= r.p.filled || r.next <= g.next || r.next >= r.end || r.attached {
		return false
	}
	if r.catchUp == nil {
		if c := r.tail.catchUp(r); c.take() {
			r.catchUp = c
		}
	}
	return r.catchUp != nil
}

func (r *Reader) endCatchUp() {
	if r.catchUp != nil {
		r.catchUp.end()
		r.catchUp = nil
	}
}

// signal wakes the reader. The partition's lock is held.
func (r *Reader) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Close releases the reader.
func (r *Reader) Close() {
	r.endCatchUp()
	p := r.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := r.thread.readers[r]; !ok {
		return
	}
	r.tail.metrics.readers.Dec()
	delete(r.thread.readers, r)
	delete(p.toEnd, r)
	if p.readers--; p.readers == 0 {
		p.idle = time.Now()
	}
	if p.err == nil {
		p.ring.drop(r.key, r.thread)
	}
}
