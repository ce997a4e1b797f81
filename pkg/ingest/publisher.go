package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/eventstream"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/tenant"
)

// spareBytes is how much of the window a request with events under way takes ahead, so that the window is not asked for each event. With
// what acknowledged events leave, it has up to twice that.
const spareBytes = 16 << 10

// errStopped is given to records that are still with the producer when their request gives up.
var errStopped = errors.New("the request has given up")

// ack is how far a request's records are acknowledged: the first Accepted of them, without a gap.
type ack struct {
	Accepted    int64 `json:"accepted"`
	Partition   int32 `json:"partition"`
	FirstOffset int64 `json:"firstOffset"` // -1 where none is
	LastOffset  int64 `json:"lastOffset"`
}

// accepted is the answer to a request all of whose events are acknowledged.
type accepted struct {
	ack
	Warnings []warning `json:"warnings,omitempty"`
}

// publisher writes the records of one request. One goroutine calls send and finish.
//
// Its records have a context of their own, which ends only when Kafka has already failed this request.
//
// On a failure Kafka's client fails everything that is buffered for the partition, in order. A record
// sent in the moment between that and the callback that tells us would leave a gap before it: ending
// the context in the callback takes it back, unless it has made it to the broker by then, which takes
// a connection that has just failed. The answer counts what lies before the gap in any case.
type publisher struct {
	writer
	records series

	ctx    context.Context
	cancel context.CancelCauseFunc
	// waiting ends what waits for quotas: with the request's context, or when the stage stops.
	waiting     context.Context
	stopWaiting context.CancelCauseFunc
	failed      func() // called once, on the first failure, while the request is still being served

	warnings []warning // of the goroutine that sends

	moved  sync.Cond   // out or err has changed
	spare  int         // bytes of the window that are taken and not in use
	unhook func() bool // from the stage's end
	done   bool
	acked  ack
	// ackedLine is the line of the last event that is acknowledged, as all before it are.
	ackedLine int64
	err       error
}

// newPublisher returns the publisher of a request, whose records name by as their producer. The request's context ends the waiting for
// quotas, and nothing that was sent.
func (s *Service) newPublisher(ctx context.Context, t target, kind record.Kind, by producer, failed func()) *publisher {
	p := &publisher{failed: failed, acked: ack{Partition: t.partition, FirstOffset: -1, LastOffset: -1}}
	p.writer = s.newWriter(t, by, p.fail)
	p.records = p.series(kind, t.run)
	p.moved.L = &p.mu
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	p.waiting, p.stopWaiting = context.WithCancelCause(ctx)
	p.unhook = context.AfterFunc(s.stopping, p.stop)
	return p
}

// quotaWait is how long a sender is slowed down to its quota before it is refused with Retry-After.
const quotaWait = 10 * time.Second

// admit takes an event's part of a tenant's quotas, and waits until they have it.
func admit(ctx context.Context, q *quota.Tenant, size int, line int64) error {
	err := q.Wait(ctx, quota.Events, 1, quotaWait)
	if err == nil {
		err = q.Wait(ctx, quota.Bytes, int64(size), quotaWait)
	}
	if err != nil && tenant.Revoked(ctx) {
		return tenant.ErrRevoked
	}
	if err != nil {
		return overQuota(err, line)
	}
	return nil
}

// send hands a copy of an event to the producer. It waits while too much is unacknowledged: that is what slows
// a caller down to Kafka's pace. It reports whether the event was taken; if not, finish says why and
// nothing more can be sent.
func (p *publisher) send(ev eventstream.Event) bool {
	size := len(ev.Value) + recordOverhead
	p.mu.Lock()
	for p.err == nil && p.out > 0 && p.outBytes+size > p.svc.cfg.RequestWindow {
		p.moved.Wait()
	}
	if p.err != nil {
		p.mu.Unlock()
		return false
	}
	need, more := size, 0
	if p.spare >= need {
		p.spare, need = p.spare-need, 0
	} else {
		more = min(spareBytes, p.outBytes)
	}
	p.mu.Unlock()
	if !p.acquire(need, more) {
		return false
	}
	large := int64(0)
	if len(ev.Value) >= largeEvent {
		large = min(int64(len(ev.Value)), p.svc.large.Limit()/largeEvents) // an input may have been written anew
		if !p.waited(func(ctx context.Context) error { return p.svc.large.Wait(ctx, p.target.tenant, large) }) {
			p.svc.memory.Release(p.target.tenant, int64(size))
			return false
		}
	}
	p.mu.Lock()
	p.begin(ev.Value)
	p.mu.Unlock()
	line := ev.Line
	p.give(p.ctx, p.svc.producer.Produce, p.records, p.records.numbered(ev.Seq), bytes.Clone(ev.Value), func(r *kgo.Record, err error) func() {
		p.svc.large.Give(p.target.tenant, large)
		p.acknowledged(r, line, size, err)
		return nil
	})
	return true
}

// acquire takes bytes of what all requests together may have under way, with more where there is room, for the next events.
func (p *publisher) acquire(need, more int) bool {
	switch {
	case need == 0:
		return true
	case more > 0 && p.svc.memory.Try(p.target.tenant, int64(need+more)):
		p.mu.Lock()
		p.spare += more
		p.mu.Unlock()
		return true
	}
	return p.svc.memory.Try(p.target.tenant, int64(need)) ||
		p.waited(func(ctx context.Context) error { return p.svc.memory.Acquire(ctx, p.target.tenant, int64(need)) })
}

// waited reports whether what an event waits for is there before the time for its acknowledgement is over, the caller has left, or the
// stage stops; else the request has failed.
func (p *publisher) waited(wait func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(p.waiting, p.svc.cfg.AckTimeout)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	if wait(ctx) == nil {
		return true
	}
	p.abort(fmt.Errorf("%w: too much is waiting for Kafka", ErrUnavailable))
	return false
}

// acknowledged is called in the order of send.
func (p *publisher) acknowledged(r *kgo.Record, line int64, size int, err error) {
	if err != nil {
		p.fail(fmt.Errorf("%w: Kafka has not acknowledged: %w", ErrUnavailable, err))
	}
	if p.err == nil {
		if p.acked.Accepted == 0 {
			p.acked.FirstOffset = r.Offset
		}
		p.acked.Accepted++
		p.acked.LastOffset, p.ackedLine = r.Offset, line
	}
	p.spared(size)
	p.moved.Broadcast()
}

// spared keeps some of the memory that an acknowledged event had for the next ones, while others are under way, and gives back the rest.
// p.mu is held.
func (p *publisher) spared(size int) {
	p.spare += size
	if p.out == 0 || p.done || p.spare >= spareBytes {
		p.svc.memory.Release(p.target.tenant, int64(p.spare))
		p.spare = 0
	}
}

// abort is fail without the lock.
func (p *publisher) abort(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail(err)
}

// fail ends the request for the first reason that is given. p.mu is held.
func (p *publisher) fail(err error) {
	if p.err != nil || p.done {
		return
	}
	p.err = err
	p.cancel(errStopped)
	p.failed() // under the lock: finish, and with it the request, cannot end before
	p.moved.Broadcast()
}

// stop has the request end because the stage does: what was sent is still waited for.
func (p *publisher) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.done && p.err == nil {
		p.stopWaiting(errDraining)
		p.failed()
	}
}

// finish waits until all that was sent is acknowledged, or the request has failed, and returns how
// far it got.
func (p *publisher) finish() (ack, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil && p.out > 0 {
		p.moved.Wait()
	}
	p.done = true
	p.spared(0)
	p.unwatch()
	p.unhook()
	p.stopWaiting(nil)
	p.cancel(errStopped) // after success there is nothing left that it could end
	return p.acked, p.err
}
