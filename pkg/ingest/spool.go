package ingest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/record"
)

const (
	// spoolRetry is the pause before failed records are sent to Kafka again. The Kafka client has retried them, usually for AckTimeout.
	spoolRetry = 500 * time.Millisecond
	// forcedBytes is the size of the largest terminal event that is accepted without free memory, since a run without its
	// end would stay open. The limit on runs also bounds this memory.
	forcedBytes = 64 << 10
)

// spool publishes the events of a proxied run, or of several runs of one stream, in order and without blocking the run.
// It keeps events until Kafka acknowledges them, and retries for as long as the process runs. Events are numbered, so
// readers drop repeats.
//
// The memory is bounded per spool and in total. The spool leaves out an event that does not fit, and skips its number.
// The next record has the count of the events left out before it (record.HeaderIncomplete), which marks the run as
// incomplete.
//
// A repeated record would follow a later one only if Kafka accepted the later record and failed the earlier one. This
// cannot happen on the client's single connection; see publisher.
type spool struct {
	writer
	event *series // events of the current run
	// begun is the offset of the stream's first record, once Kafka has acknowledged it; -1 before.
	begun atomic.Int64
	// failed is called once, in its own goroutine, when Kafka does not accept a record or the memory is used up.
	failed func(error)
	// emptied is called once after close, when every queued record is acknowledged or dropped.
	emptied func()

	// The writer's lock guards the following fields.
	queue   []*spooled    // not acknowledged, oldest first; the producer has the first `out` of them
	held    int           // bytes in the queue
	seq     int64         // number of the next event
	leftOut int64         // events left out after the last record of the queue
	careful bool          // send one record at a time because the last attempt failed
	waiting bool          // the last attempt failed, and the next one has not started
	ended   bool          // no more records are added
	stopped bool          // no more attempts are made
	told    bool          // failed was called
	settled chan struct{} // closed when the queue is empty or an attempt has failed; nil if nobody waits
	retry   *time.Timer
	ctx     context.Context // of the records that the producer has
	cancel  context.CancelFunc
}

// spooled is a queued record.
type spooled struct {
	of        *series
	value     []byte
	seq       int64 // -1 for an input
	synthetic bool
	leftOut   int64 // events left out directly before this record
	counted   int   // bytes acquired for the record; 0 if it was accepted without room
}

func (s *Service) newSpool(t target, by producer, failed func(error), emptied func()) *spool {
	sp := &spool{failed: failed, emptied: emptied}
	sp.begun.Store(-1)
	sp.writer = s.newWriter(t, by, sp.tell)
	sp.event = sp.series(record.KindEvent, t.run)
	sp.ctx, sp.cancel = context.WithCancel(context.Background())
	return sp
}

// beginRun assigns all later events to another run. Their numbers start at 0.
func (sp *spool) beginRun(run string) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.event, sp.seq = sp.series(record.KindEvent, run), 0
}

// addInput adds the run's input. If there is no room, it returns false, and the run must not begin.
func (sp *spool) addInput(value []byte) bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.add(&spooled{of: sp.series(record.KindInput, sp.target.run), value: value, seq: -1}, false)
}

// addEvent adds a copy of an event and returns its number. It leaves out an event that does not fit. If the argument
// must is true, as for a run's end, it accepts an event of up to forcedBytes even without room.
func (sp *spool) addEvent(value []byte, synthetic, must bool) int64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	seq := sp.seq
	sp.seq++
	if sp.add(&spooled{of: sp.event, value: value, seq: seq, synthetic: synthetic}, must) {
		return seq
	}
	sp.leftOut++
	sp.noRoom()
	return seq
}

// skip leaves out an event and returns its number. The event was too large or, if noRoom is true, did not fit into
// memory.
func (sp *spool) skip(noRoom bool) int64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	seq := sp.seq
	sp.seq++
	sp.leftOut++
	if !noRoom {
		sp.svc.metrics.leftOut.WithLabelValues(leftOutTooLarge).Inc()
		return seq
	}
	sp.noRoom()
	return seq
}

// noRoom counts an event that did not fit into memory and calls tell.
func (sp *spool) noRoom() {
	sp.svc.metrics.leftOut.WithLabelValues(leftOutRoom).Inc()
	sp.tell(errNoRoom)
}

// add appends a record to the queue. It returns false if there is no room or the spool has stopped.
func (sp *spool) add(e *spooled, must bool) bool {
	if sp.stopped {
		return false
	}
	size := len(e.value) + recordOverhead
	switch {
	case sp.held+size <= sp.svc.cfg.Memory/runShare && sp.acquire(int64(size)) == nil:
		e.counted = size
	case must && len(e.value) <= forcedBytes:
	default:
		return false
	}
	if e.seq >= 0 {
		e.value = bytes.Clone(e.value)
	}
	e.leftOut, sp.leftOut = sp.leftOut, 0
	sp.held += size
	sp.queue = append(sp.queue, e)
	sp.pump()
	return true
}

// acquire acquires n bytes of the tenant's memory or returns errNoRoom. It does not wait, because the run would block
// its caller.
func (sp *spool) acquire(n int64) error {
	if !sp.svc.memory.Take(sp.target.tenant, n) {
		return errNoRoom
	}
	return nil
}

func (sp *spool) release(n int64) { sp.svc.memory.Give(sp.target.tenant, n) }

// pump sends queued records to the producer, up to RequestWindow.
func (sp *spool) pump() {
	for !sp.waiting && !sp.stopped && sp.out < len(sp.queue) {
		e := sp.queue[sp.out]
		if sp.out > 0 && (sp.careful || sp.outBytes+len(e.value)+recordOverhead > sp.svc.cfg.RequestWindow) {
			return
		}
		sp.begin(e.value)
		m := sp.record(e.headers(), e.value)
		sent := m.Timestamp
		// TryProduce, because Produce blocks while the client's own buffer is full.
		sp.svc.producer.TryProduce(sp.ctx, m, func(r *kgo.Record, err error) {
			if err == nil && e.seq < 0 {
				sp.begun.CompareAndSwap(-1, r.Offset)
			}
			sp.result(r, e.of, sent, err, func() func() { return sp.acknowledged(e, err) })
		})
	}
}

func (e *spooled) headers() []kgo.RecordHeader {
	hs := e.of.numbered(e.seq)
	if e.synthetic {
		hs = append(hs, kgo.RecordHeader{Key: record.HeaderSynthetic, Value: []byte("true")})
	}
	if e.leftOut > 0 {
		hs = append(hs, kgo.RecordHeader{Key: record.HeaderIncomplete, Value: strconv.AppendInt(nil, e.leftOut, 10)})
	}
	return hs
}

// acknowledged handles the result of a record, in the order of pump. It returns nil or a function to call without the
// lock.
func (sp *spool) acknowledged(e *spooled, err error) func() {
	switch {
	case err == nil:
		sp.remove(e)
		sp.careful = sp.careful && sp.waiting
	case sp.careful && !sp.waiting && refused(err):
		// Only this record was in flight, so the error is about it.
		sp.svc.metrics.leftOut.WithLabelValues(leftOutRefused).Inc()
		sp.drop(e)
		sp.tell(err)
	default:
		if !sp.waiting && !sp.stopped {
			sp.careful, sp.waiting = true, true
			sp.cancel() // records that the producer still has must not overtake this one
			sp.tell(err)
		}
	}
	if sp.settled != nil && (len(sp.queue) == 0 || sp.waiting || sp.stopped) {
		close(sp.settled)
		sp.settled = nil
	}
	if sp.waiting && sp.out == 0 && !sp.stopped { // every record of the attempt has its result
		sp.retry = time.AfterFunc(spoolRetry, sp.again)
	}
	sp.pump()
	if sp.isEmpty() {
		return sp.emptied
	}
	return nil
}

// refused reports whether an error is about the record itself and not about the brokers.
func refused(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.InvalidRecord) || errors.Is(err, kerr.PolicyViolation) ||
		errors.Is(err, kerr.InvalidTimestamp) || errors.Is(err, kerr.CorruptMessage)
}

// again starts the next attempt.
func (sp *spool) again() {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.stopped || !sp.waiting {
		return
	}
	sp.ctx, sp.cancel = context.WithCancel(context.Background())
	sp.waiting = false
	sp.pump()
}

// tell calls failed when records are first delayed or lost. Further calls do nothing.
func (sp *spool) tell(err error) {
	if !sp.told {
		sp.told = true
		go sp.failed(err)
	}
}

// remove deletes a finished record from the queue, frees its memory and returns its index. The index is 0 unless an
// earlier record has failed.
func (sp *spool) remove(e *spooled) int {
	for i, q := range sp.queue {
		if q == e {
			if i == 0 {
				sp.queue[0] = nil
				sp.queue = sp.queue[1:]
			} else {
				sp.queue = slices.Delete(sp.queue, i, i+1)
			}
			sp.held -= len(e.value) + recordOverhead
			sp.release(int64(e.counted))
			return i
		}
	}
	return 0
}

// drop removes a record from the queue and adds it to the count of events left out before the next record.
func (sp *spool) drop(e *spooled) {
	at := sp.remove(e)
	if n := e.leftOut + 1; at < len(sp.queue) {
		sp.queue[at].leftOut += n
	} else {
		sp.leftOut += n
	}
}

// settle waits until Kafka has acknowledged the whole queue, an attempt has failed, or the time is over.
func (sp *spool) settle(most time.Duration) {
	sp.mu.Lock()
	if len(sp.queue) == 0 || sp.waiting || sp.stopped {
		sp.mu.Unlock()
		return
	}
	if sp.settled == nil {
		sp.settled = make(chan struct{})
	}
	settled := sp.settled
	sp.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-settled:
	case <-timer.C:
	}
}

// unsaid returns the number of events that were left out after the last record, so that no record counts them.
func (sp *spool) unsaid() int64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.leftOut
}

// close prevents further records. Queued records are still published.
func (sp *spool) close() {
	sp.mu.Lock()
	sp.ended = true
	done := sp.isEmpty()
	sp.mu.Unlock()
	if done {
		sp.emptied()
	}
}

func (sp *spool) isClosed() bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.ended
}

// isEmpty reports whether the spool is closed and all its records are finished. It returns true only once.
func (sp *spool) isEmpty() bool {
	if !sp.ended || len(sp.queue) > 0 || sp.stopped {
		return false
	}
	sp.halt()
	return true
}

func (sp *spool) halt() {
	sp.stopped = true
	sp.traced(sp.acks, nil)
	sp.cancel()
	sp.unwatch()
	if sp.retry != nil {
		sp.retry.Stop()
	}
}

// abandon stops the spool because the process ends. It returns how many records are not acknowledged.
func (sp *spool) abandon() int {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.stopped {
		return 0
	}
	sp.halt()
	return len(sp.queue)
}
