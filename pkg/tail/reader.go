package tail

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// batchBytes is about how many bytes of records one call of Next returns.
	batchBytes = 256 << 10
	// slowAfter is how long a reader may be busy with what it was given before records that left the ring meanwhile
	// make it slow. One that is quicker catches up from the log: a burst was larger than the ring.
	slowAfter = 10 * time.Second
)

// Reader gives the records of one thread, from an offset on. One goroutine uses it at a time.
type Reader struct {
	tail *Tail
	p    *partition
	key  string
	// next is the offset from which on records are still to be given; end is the log's end when the reader began.
	next, end int64
	wake      chan struct{} // buffered: one signal is enough, however many records came
	thread    *thread
	lastAsked time.Time
	away      bool // what the reader was told last
	// attached: the ring had all from next on at some moment. From then on thread.evicted tells what has left it.
	attached bool
	catchUp  *catchUp // nil while the ring has what comes next
}

// Batch is what a reader is given at a time.
type Batch struct {
	// Records are of the thread, in offset order: events and whatever else its partition has with its key. They are
	// shared with other readers: do not change them.
	Records []*kgo.Record
	// Through is an offset: every record of the thread below it was given by now.
	Through int64
	// Away says that no broker has answered for a while. The next batch says whether that is over.
	Away bool
}

// End is the end of the log when the reader began: what lies below was there.
func (r *Reader) End() int64 { return r.end }

// Next returns the next records of the thread, and waits for them. A batch without records says that the reader has
// come to End, or that brokers are away, or back. Errors: ErrSlow, ErrGone, ErrClosed, that of the context, or what
// Kafka says; none of them passes by itself, and another reader may go on from Through.
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
			if b, err = r.catchUp.read(ctx, r); err != nil {
				return Batch{}, err
			}
			if len(b.Records) > 0 || b.Away != r.away {
				r.away = b.Away
				r.lastAsked = time.Now()
				return b, nil
			}
			continue
		}
		select {
		case <-r.wake:
			r.lastAsked = time.Now() // it has waited, so it keeps up
		case <-ctx.Done():
			return Batch{}, ctx.Err()
		}
	}
}

// look returns what the ring has. Where it does not have what comes next, a catch-up is begun.
func (r *Reader) look() (_ Batch, wait bool, _ error) {
	away := r.tail.isAway()
	p := r.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return Batch{}, false, p.err
	}
	g := p.ring
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
			r.catchUp = r.tail.catchUp()
		}
		return Batch{}, true, nil
	}
	r.endCatchUp()
	b := Batch{Records: r.thread.from(r.next, batchBytes), Through: g.next, Away: away}
	if n := len(b.Records); n > 0 && b.Records[n-1] != r.thread.records.all()[r.thread.records.len()-1] {
		b.Through = b.Records[n-1].Offset + 1
	}
	b.Through = max(b.Through, r.next)
	wait = len(b.Records) == 0 && (r.next >= r.end || b.Through < r.end) && away == r.away
	r.next, r.away = b.Through, away
	return b, wait, nil
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

// Close lets the reader go.
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
