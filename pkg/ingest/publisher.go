package ingest

import (
	"context"
	"errors"
	"hash/maphash"
	"net/http"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/internal/share"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/eventstream"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/tenant"
)

// spareBytes is how much memory a request with unacknowledged events acquires in advance, instead of once per event. It
// may also keep up to spareBytes of the memory of acknowledged events.
const spareBytes = 16 << 10

// mostCopies is the largest allocation that copies of several events share.
const mostCopies = 4 << 10

// errStopped is the error of records that are still in the producer when their request fails.
var errStopped = errors.New("the request has given up")

// ack describes which records of a request are acknowledged: the first Accepted of them, without a gap.
type ack struct {
	Accepted    int64 `json:"accepted"`
	Partition   int32 `json:"partition"`
	FirstOffset int64 `json:"firstOffset"` // -1 if none is acknowledged
	LastOffset  int64 `json:"lastOffset"`
}

// accepted is the response to a request whose events are all acknowledged.
type accepted struct {
	ack
	// Unreadable is how many of the accepted events no client can read (agui.Event.Admit).
	Unreadable int64 `json:"unreadable,omitempty"`
	repeats
	Warnings []warning `json:"warnings,omitempty"`
}

// publisher writes the records of one request. Only one goroutine calls send and finish.
//
// The records have their own context, which ends only after the request has failed or all its records are acknowledged.
//
// If a record fails, the client fails all records that it buffers for the partition, in order. A record that send adds
// before the callback runs could then follow a gap. The callback cancels the context, so the client drops this record
// unless a broker already has it. In any case, the response counts only the records before the gap.
type publisher struct {
	writer
	records *series

	ctx         context.Context
	cancel      context.CancelCauseFunc
	waiting     context.Context // Service.waiting
	stopWaiting func()
	failed      func() // called once, on the first failure, before the request ends

	unreadable int64 // this and warnings are used only by the sending goroutine
	warnings   []warning
	copies     []byte
	sent       *sentRun // of the target; nil before the first numbered event

	moved  sync.Cond   // signals changes of out and err
	spare  int         // bytes of memory that are acquired and not in use
	unhook func() bool // undoes the registration of stop at Service.stopping
	done   bool
	acked  ack
	// ackedLine is the line of the last acknowledged event. All events before it are acknowledged, too.
	ackedLine int64
	repeats   repeats
	added     int // hashes in sent
	err       error
}

// newPublisher returns the publisher of a request. The argument by is the producer of its records. The end of ctx ends
// waits for quotas and memory, but does not affect records that were sent.
func (s *Service) newPublisher(ctx context.Context, t target, kind record.Kind, by producer, failed func()) *publisher {
	p := &publisher{failed: failed, acked: ack{Partition: t.partition, FirstOffset: -1, LastOffset: -1}}
	p.writer = s.newWriter(t, by, p.fail)
	p.records = p.series(kind, t.run)
	p.moved.L = &p.mu
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	p.waiting, p.stopWaiting = s.waiting(ctx)
	p.unhook = context.AfterFunc(s.stopping, p.stop)
	return p
}

// waiting returns a context for a request's waits for quotas and memory. The context ends with ctx, or when the stage
// stops, with errDraining as its cause.
func (s *Service) waiting(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(s.stopping, func() { cancel(errDraining) })
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// quotaWait is how long a quota may delay an event. An event that would wait longer is refused with Retry-After.
const quotaWait = 10 * time.Second

// admit waits until the tenant's quotas allow one event of size bytes, and takes the tokens for it.
func admit(ctx context.Context, q *quota.Tenant, size int, line int64) error {
	err := q.Wait(ctx, quota.Events, 1, quotaWait)
	if err == nil {
		err = q.Wait(ctx, quota.Bytes, int64(size), quotaWait)
	}
	if err == nil {
		return nil
	}
	var exceeded *quota.ExceededError
	switch {
	case tenant.Revoked(ctx):
		return tenant.ErrRevoked
	case !errors.As(err, &exceeded): // the process stops
		err = errDraining
	}
	p := problemOf(err)
	p.Line = line
	return p
}

// send passes a copy of an event to the producer. It blocks while too many bytes are unacknowledged, which slows the
// caller down to Kafka's pace. If the request has failed, send returns false and finish returns the reason.
func (p *publisher) send(ev eventstream.Event, t agui.Type) bool {
	size := len(ev.Value) + recordOverhead
	p.mu.Lock()
	for p.err == nil && p.out > 0 && p.outBytes+size > p.svc.cfg.RequestWindow {
		p.moved.Wait()
	}
	if p.err != nil {
		p.mu.Unlock()
		return false
	}
	more, spared := min(spareBytes, p.outBytes), p.spare >= size
	if spared {
		p.spare -= size
	}
	p.mu.Unlock()
	if !spared && !p.acquireMemory(size, more) {
		return false
	}
	large := int64(0)
	if len(ev.Value) >= largeEvent {
		large = min(int64(len(ev.Value)), p.svc.large.Limit()/largeEvents) // an upgraded input may be larger than the limit
		if !p.acquire(p.svc.large, large) {
			p.svc.memory.Give(p.target.tenant, int64(size))
			return false
		}
	}
	p.mu.Lock()
	p.begin(ev.Value)
	p.mu.Unlock()
	line, seq, sum := ev.Line, ev.Seq, uint64(0)
	if seq >= 0 {
		compared := ev.Value
		if t == agui.RunStarted {
			compared = record.Compacted(agui.Without(compared, agui.FieldInput.String()))
		}
		if sum = maphash.Bytes(p.svc.sent.seed, compared); p.sent == nil {
			p.sent = p.svc.sent.of(runKey{p.target.key, p.target.run})
		}
	}
	m := p.record(p.records.numbered(seq), p.copyOf(ev.Value, more))
	sent := m.Timestamp
	p.svc.producer.Produce(p.ctx, m, func(r *kgo.Record, err error) {
		p.result(r, p.records, sent, err, func() func() {
			if large > 0 {
				p.svc.large.Give(p.target.tenant, large)
			}
			if err == nil && seq >= 0 {
				again, added := p.sent.take(seq, t, sum)
				p.repeats.Repeated += again.Repeated
				p.repeats.Different += again.Different
				p.added += added
			}
			p.acknowledged(r, line, err)
			return nil
		})
	})
	return true
}

// copyOf returns a copy of a value. While records are out, copies share allocations: the next one has room for up to more bytes.
func (p *publisher) copyOf(value []byte, more int) []byte {
	if more == 0 || len(p.copies)+len(value) > cap(p.copies) {
		p.copies = make([]byte, 0, max(len(value), min(more, mostCopies)))
	}
	p.copies = append(p.copies, value...)
	return p.copies[len(p.copies)-len(value) : len(p.copies) : len(p.copies)]
}

// acquireMemory acquires need bytes of the shared memory, and waits for them if necessary. If there is room, it also
// acquires the bytes of the argument more, for later events.
func (p *publisher) acquireMemory(need, more int) bool {
	if more > 0 && p.svc.memory.Take(p.target.tenant, int64(need+more)) {
		p.mu.Lock()
		p.spare += more
		p.mu.Unlock()
		return true
	}
	return p.svc.memory.Take(p.target.tenant, int64(need)) || p.acquire(p.svc.memory.Pool, int64(need))
}

// acquire waits for n units of a pool and reports whether it acquired them. It fails the request if AckTimeout passes, the
// caller disconnects or the stage stops before that.
func (p *publisher) acquire(pool *share.Pool, n int64) bool {
	ctx, cancel := context.WithTimeout(p.waiting, p.svc.cfg.AckTimeout)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	if pool.Wait(ctx, p.target.tenant, n) == nil {
		return true
	}
	if p.waiting.Err() != nil {
		err := context.Cause(p.waiting) // errDraining, or why the request ended
		if tenant.Revoked(p.waiting) {
			err = tenant.ErrRevoked
		}
		p.abort(err)
		return false
	}
	full := front.Refuse(http.StatusServiceUnavailable, reasonUnavailable, "too much is waiting for Kafka")
	full.Limit, full.Retry = "memory", retryAfter
	p.abort(full)
	return false
}

// acknowledged handles the result of a record. It is called in the order of send, with p.mu held.
func (p *publisher) acknowledged(r *kgo.Record, line int64, err error) {
	if err != nil && p.err == nil && !p.done {
		p.fail(p.svc.kafkaFailed(p.target, "Kafka has not acknowledged", err))
	}
	if p.err == nil {
		if p.acked.Accepted == 0 {
			p.acked.FirstOffset = r.Offset
		}
		p.acked.Accepted++
		p.acked.LastOffset, p.ackedLine = r.Offset, line
	}
	p.spared(len(r.Value) + recordOverhead)
	p.moved.Broadcast()
}

// spared adds an acknowledged event's memory to p.spare, for later events. It releases p.spare from spareBytes on, and
// if no record is unacknowledged or the request is done. The caller must hold p.mu.
func (p *publisher) spared(size int) {
	p.spare += size
	if p.out == 0 || p.done || p.spare >= spareBytes {
		p.svc.memory.Give(p.target.tenant, int64(p.spare))
		p.spare = 0
	}
}

// abort locks p.mu and calls fail.
func (p *publisher) abort(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail(err)
}

// fail ends the request. Only the first error counts. The caller must hold p.mu.
func (p *publisher) fail(err error) {
	if p.err != nil || p.done {
		return
	}
	p.err = err
	p.cancel(errStopped)
	p.failed() // under the lock, so that neither finish nor the request can end before
	p.moved.Broadcast()
}

// stop ends the request because the stage stops. finish still waits for records that were sent.
func (p *publisher) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.done && p.err == nil {
		p.failed()
	}
}

// finish waits until all sent records are acknowledged or the request has failed. It returns which records are
// acknowledged. Further calls return the same.
func (p *publisher) finish() (ack, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil && p.out > 0 {
		p.moved.Wait()
	}
	if !p.done && p.sent != nil {
		p.svc.sent.grown(p.added)
		p.svc.metrics.repeats.WithLabelValues("same").Add(float64(p.repeats.Repeated))
		p.svc.metrics.repeats.WithLabelValues("different").Add(float64(p.repeats.Different))
		if p.repeats.Different > 0 {
			p.svc.logger.Warn("a run was sent again with other events, which are dropped", "tenant", p.target.tenant,
				"thread_id", p.target.thread, "run_id", p.target.run, "repeated", p.repeats.Repeated, "different", p.repeats.Different)
		}
	}
	if !p.done {
		p.traced(p.acks, p.err)
	}
	p.done = true
	p.spared(0)
	p.unwatch()
	p.unhook()
	p.stopWaiting()
	p.cancel(errStopped) // no effect after success: no record is left
	return p.acked, p.err
}
