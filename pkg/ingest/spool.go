package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/record"
)

const (
	// spoolRetry is the pause before records are sent to Kafka again. The client has tried for AckTimeout by then.
	spoolRetry = 500 * time.Millisecond
	// forcedBytes is the size of the largest event that is accepted without room: a run's end, without which the run
	// would stay open. The number of runs bounds this memory, too.
	forcedBytes = 64 << 10
)

// spool publishes the events of a proxied run, or of several runs of one stream, in order and without making the run wait. It holds
// events until they are acknowledged, and sends them to Kafka again for as long as the process runs: events are numbered, so that
// readers drop repeats.
//
// The memory is bounded, per run and in total. An event for which there is no room is left out together with its number,
// and the next record says how many were left out (record.HeaderIncomplete), which marks the run.
//
// A record that is sent again can follow a later one only if Kafka accepted the later one while it failed the
// earlier one, which cannot happen on the client's one connection; see publisher.
type spool struct {
	writer
	event series // of the current run
	// failed is called once, in a goroutine of its own, when Kafka does not take what it is given, or there is no more room.
	failed func(error)
	// emptied is called when all that was ever added is acknowledged, or was left out for good, after close.
	emptied func()

	// The lock is the writer's.
	queue   []*spooled // not acknowledged, oldest first; out of them are with the producer
	held    int        // bytes of the queue
	seq     int64      // of the next event
	leftOut int64      // events behind the queue's last
	careful bool       // one record at a time: the last attempt failed
	waiting bool       // for the next attempt
	ended   bool       // nothing is added any more
	stopped bool       // nothing is tried any more
	told    bool       // of a failure
	retry   *time.Timer
	ctx     context.Context // of the records that are with the producer
	cancel  context.CancelFunc
}

// spooled is a record of a spool.
type spooled struct {
	of        series
	value     []byte
	seq       int64 // -1 of an input
	synthetic bool
	leftOut   int64 // events before it, behind the one before
	counted   int   // bytes of the budget
}

func (s *Service) newSpool(t target, by producer, failed func(error), emptied func()) *spool {
	sp := &spool{failed: failed, emptied: emptied}
	sp.writer = s.newWriter(t, by, sp.tell)
	sp.event = sp.series(record.KindEvent, t.run)
	sp.ctx, sp.cancel = context.WithCancel(context.Background())
	return sp
}

// beginRun says that the events from now on are another run's.
func (sp *spool) beginRun(run string) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.event, sp.seq = sp.series(record.KindEvent, run), 0
}

// addInput adds the run's input. It reports whether there was room; where there was none the run must not begin.
func (sp *spool) addInput(value []byte) bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.add(&spooled{of: sp.series(record.KindInput, sp.target.run), value: value, seq: -1}, false)
}

// addEvent adds an event, whose bytes it copies. One that must be there, such as a run's end, is taken without
// room where it is small. It returns the event's number.
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

// skip leaves an event out that was not held, as it was too large or there was no room for it, and returns its number.
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

// noRoom counts an event for which there was no room, and tells.
func (sp *spool) noRoom() {
	sp.svc.metrics.leftOut.WithLabelValues(leftOutRoom).Inc()
	sp.tell(fmt.Errorf("%w: too much is waiting for Kafka", ErrUnavailable))
}

// add takes a record if there is room.
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

// acquire takes n bytes of what the runs of the tenant may hold, or nothing. Nobody waits for it: a run that waited would make its caller
// wait.
func (sp *spool) acquire(n int64) error {
	if !sp.svc.memory.Try(sp.target.tenant, n) {
		return errNoRoom
	}
	return nil
}

func (sp *spool) release(n int64) { sp.svc.memory.Release(sp.target.tenant, n) }

// pump gives the producer what it may have.
func (sp *spool) pump() {
	for !sp.waiting && !sp.stopped && sp.out < len(sp.queue) {
		e := sp.queue[sp.out]
		if sp.out > 0 && (sp.careful || sp.outBytes+len(e.value)+recordOverhead > sp.svc.cfg.RequestWindow) {
			return
		}
		sp.begin(e.value)
		// Never Produce: that waits where the client's own buffer is full.
		sp.give(sp.ctx, sp.svc.producer.TryProduce, e.of, e.headers(), e.value,
			func(_ *kgo.Record, err error) func() { return sp.acknowledged(e, err) })
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

// acknowledged is called in the order of pump. It returns what is to be called without the lock.
func (sp *spool) acknowledged(e *spooled, err error) func() {
	switch {
	case err == nil:
		sp.remove(e)
		sp.careful = sp.careful && sp.waiting
	case sp.careful && !sp.waiting && refused(err):
		// It was alone, so it is this record that Kafka does not want.
		sp.svc.metrics.leftOut.WithLabelValues(leftOutRefused).Inc()
		sp.drop(e)
		sp.tell(err)
	default:
		if !sp.waiting && !sp.stopped {
			sp.careful, sp.waiting = true, true
			sp.cancel() // what is still with the producer must not overtake
			sp.tell(err)
		}
	}
	if sp.waiting && sp.out == 0 && !sp.stopped { // all of the attempt has come back
		sp.retry = time.AfterFunc(spoolRetry, sp.again)
	}
	sp.pump()
	if sp.isEmpty() {
		return sp.emptied
	}
	return nil
}

// refused reports whether an error is about the record, and not about the brokers.
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

// tell says once that not all can be published at once, or ever.
func (sp *spool) tell(err error) {
	if !sp.told {
		sp.told = true
		go sp.failed(err)
	}
}

// remove takes a record out that is done with: the first one, but where an earlier one has failed.
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

// drop leaves a record out, and has the next one say so.
func (sp *spool) drop(e *spooled) {
	at := sp.remove(e)
	if n := e.leftOut + 1; at < len(sp.queue) {
		sp.queue[at].leftOut += n
	} else {
		sp.leftOut += n
	}
}

// unsaid is how many events were left out with no record behind them.
func (sp *spool) unsaid() int64 {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return sp.leftOut
}

// close says that nothing is added any more. What is there is still published.
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

// isEmpty reports, once, that there is nothing left to do.
func (sp *spool) isEmpty() bool {
	if !sp.ended || len(sp.queue) > 0 || sp.stopped {
		return false
	}
	sp.halt()
	return true
}

func (sp *spool) halt() {
	sp.stopped = true
	sp.cancel()
	sp.unwatch()
	if sp.retry != nil {
		sp.retry.Stop()
	}
}

// abandon gives up, because the process ends, and returns how many records were not acknowledged.
func (sp *spool) abandon() int {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.stopped {
		return 0
	}
	sp.halt()
	return len(sp.queue)
}
