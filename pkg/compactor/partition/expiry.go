package partition

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/skeinhq/skein/pkg/record"
)

// A run of which nothing comes for the idle limit is abandoned: it has an end that yields to a real event. That is judged
// in stream time, at the processed offset and above. It is done for a thread before its next record is looked at (expireIdleOf), as
// what that decides may rest on it; so it makes no difference when it is done for the others: with
// the next transactions, as far as each has room (expire).
//
// A run that has been abandoned for a week is closed: its end is final, and later events are treated as after any terminal
// event. That is judged by the clock and the record's own time on skein.runs, and not by the times of events:
// those may be of long ago, and are told again. It is decided once, by a record that says so in a transaction with the processed offset: whatever
// came for the run before lies below its Next, and what was placed beside it has its place in a record (writeUnsealed).

// closeAfter is how many idle limits a run has that was abandoned: a week by default. Agents that wait for a person go on
// after days; and a run that may go on costs the partition memory, and its thread a record for each later run.
const closeAfter = 168

// isIdle reports whether the run that has waited longest expires at that time.
func (p *Processor) isIdle(at time.Time) bool {
	w := p.expiring.oldest()
	return w != nil && !w.since.Add(p.cfg.IdleLimit).After(at)
}

// expire bytes up, and closes, as many runs as the transaction has room for, and one at least; or it marks runs for a gap.
// Not below the processed offset, where all of that was decided.
func (p *Processor) expire(now time.Time) error {
	hasRoom := p.room.forExpiries()
	switch {
	case p.gap != nil:
		return p.markRawLost(now, hasRoom)
	case p.next < p.progress.Processed:
		return nil
	}
	for p.isIdle(p.clock.stream) && hasRoom() { // those first that fell silent first
		if err := p.expireRun(p.expiring.oldest().key, now); err != nil {
			return err
		}
	}
	for p.isOld(now) && p.clock.isUpToDate(p.next, now, p.cfg.IdleLimit) && hasRoom() {
		r, err := p.loadByKey(p.closing.oldest().key, now)
		if err != nil {
			return err
		}
		out, err := p.close(r, outputClosed)
		if err != nil {
			return err
		}
		p.write(*out)
	}
	return nil
}

// expireIdleOf bytes up all runs of a thread that are silent, and notes when to look again.
func (p *Processor) expireIdleOf(t *thread, now time.Time) error {
	t.noExpiryBefore = p.clock.stream.Add(p.cfg.IdleLimit) // what begins or goes on behind this
	var expiring []*expiryEntry
	for _, h := range t.open {
		if h.isExpired() {
			continue
		}
		key, err := record.RunKey(t.tenant, t.id, h.ID)
		if err != nil {
			return fmt.Errorf("abandoning run: %w", err)
		}
		w := p.expiring.byKey[key]
		switch at := w.since.Add(p.cfg.IdleLimit); {
		case !at.After(p.clock.stream):
			expiring = append(expiring, w)
		case at.Before(t.noExpiryBefore):
			t.noExpiryBefore = at
		}
	}
	slices.SortFunc(expiring, func(a, b *expiryEntry) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.key, b.key)) })
	for _, w := range expiring { // in the order in which expire does it
		if err := p.expireRun(w.key, now); err != nil {
			return err
		}
	}
	return nil
}

// isOld reports whether the run that was abandoned first is to be closed by now.
func (p *Processor) isOld(now time.Time) bool {
	w := p.closing.oldest()
	return w != nil && now.Sub(w.since)/closeAfter >= p.cfg.IdleLimit
}
