package partition

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A run without a record for the idle limit expires: its record has the status abandoned, until a real event reopens it. Expiry is decided
// in stream time, at and above the processed offset. The runs of a thread expire before its next record is processed, as the outcome of
// that record may depend on it (expireIdleOf). Runs of other threads expire with the next transactions, as far as each has room (expire).
//
// A run that expired a week ago is closed: its end is final, and later events count as after any terminal event. That is decided by the
// wall-clock time since its record was written to skein.runs, not by event times, which may be long past. A record in the same transaction
// as the processed offset makes the decision final: all earlier events of the run lie below the record's Next, and runs whose parent was
// resolved while it was open have their resolution in a record (announce).

// closeAfter is how many idle limits after its expiry a run is closed: a week by default. It is long, as an agent that waits for a person
// may continue after days. It is no longer, as an expired run takes memory, and costs its thread a record for each later run.
const closeAfter = 168

// retirement ends runs that no event ends: by the idle limit, the clock, and the quota of a tenant.
type retirement struct {
	p *Processor
	// expiring orders every open run by the stream time of its last record, and closing every expired run by the wall-clock time of its last
	// record on skein.runs.
	expiring, closing *expiryQueue
}

// nextExpiry returns when the next run expires or is closed; zero if there is none.
func (e *retirement) nextExpiry() (at time.Time) {
	if w := e.expiring.oldest(); w != nil {
		at = w.since.Add(e.p.cfg.IdleLimit)
	}
	w := e.closing.oldest()
	if w == nil {
		return at
	}
	limit := time.Duration(math.MaxInt64)
	if e.p.cfg.IdleLimit <= limit/closeAfter {
		limit = e.p.cfg.IdleLimit * closeAfter
	}
	if closed := w.since.Add(limit); at.IsZero() || closed.Before(at) {
		return closed
	}
	return at
}

// isIdle reports whether any open run expires at the stream time at.
func (e *retirement) isIdle(at time.Time) bool {
	w := e.expiring.oldest()
	return w != nil && !w.since.Add(e.p.cfg.IdleLimit).After(at)
}

// expire expires and closes runs while the transaction has room, but at least one. In a gap it marks runs instead. Below the processed
// offset it does nothing, as all of that was decided before.
func (e *retirement) expire(now time.Time) error {
	hasRoom := e.p.room.forExpiries()
	switch {
	case e.p.gap != nil:
		return e.p.markRawLost(now, hasRoom)
	case e.p.rebuilds():
		return nil
	}
	for e.isIdle(e.p.clock.stream) && hasRoom() { // the longest idle first
		if err := e.expireRun(e.expiring.oldest().key, now); err != nil {
			return err
		}
	}
	for e.isOld(now) && e.p.clock.isUpToDate(e.p.next, now, e.p.cfg.IdleLimit) && hasRoom() {
		r, err := e.p.loadByKey(e.closing.oldest().key, now)
		if err != nil {
			return err
		}
		if err := r.writeClosed(outputClosed); err != nil {
			return err
		}
	}
	return nil
}

// expireIdleOf expires all idle runs of a thread and records when to check again.
func (e *retirement) expireIdleOf(t *thread, now time.Time) error {
	t.noExpiryBefore = e.p.clock.stream.Add(e.p.cfg.IdleLimit) // for runs that begin or get records from now on
	var expiring []*expiryEntry
	for _, h := range t.Unsealed() {
		if h.IsExpired() {
			continue
		}
		w := e.expiring.byKey[t.runKey(h.ID)]
		switch at := w.since.Add(e.p.cfg.IdleLimit); {
		case !at.After(e.p.clock.stream):
			expiring = append(expiring, w)
		case at.Before(t.noExpiryBefore):
			t.noExpiryBefore = at
		}
	}
	slices.SortFunc(expiring, func(a, b *expiryEntry) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.key, b.key)) })
	for _, w := range expiring { // in the same order as expire
		if err := e.expireRun(w.key, now); err != nil {
			return err
		}
	}
	return nil
}

// isOld reports whether a run is due to be closed.
func (e *retirement) isOld(now time.Time) bool {
	w := e.closing.oldest()
	return w != nil && now.Sub(w.since)/closeAfter >= e.p.cfg.IdleLimit
}
