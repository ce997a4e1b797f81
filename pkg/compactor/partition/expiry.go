package partition

import (
	"cmp"
	"container/heap"
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

// wait is a run that has waited for its next record since a time.
type wait struct {
	key           string // of its record
	since, sorted time.Time
	place         int
}

// expiryQueue are runs in the order of what they wait since. A run that is spoken of changes that with each record, and its
// place (sorted) only when it is the first.
type expiryQueue struct {
	byKey map[string]*wait
	heap  expiryHeap
}

func newExpiryQueue() *expiryQueue { return &expiryQueue{byKey: map[string]*wait{}} }

func (w *expiryQueue) add(key string, since time.Time) *wait {
	one := &wait{key: key, since: since, sorted: since}
	w.byKey[key] = one
	heap.Push(&w.heap, one)
	return one
}

// heard notes when the last record of a run came. It goes back only where stream time does (an older version's record, the clock).
func (w *expiryQueue) heard(one *wait, since time.Time) {
	if one.since = since; since.Before(one.sorted) {
		one.sorted = since
		heap.Fix(&w.heap, one.place)
	}
}

func (w *expiryQueue) drop(key string) {
	if one := w.byKey[key]; one != nil {
		heap.Remove(&w.heap, one.place)
		delete(w.byKey, key)
	}
}

// longest returns the run that has waited longest; nil if there is none.
func (w *expiryQueue) longest() *wait {
	for len(w.heap) > 0 {
		first := w.heap[0]
		if first.since.Equal(first.sorted) {
			return first
		}
		first.sorted = first.since
		heap.Fix(&w.heap, 0)
	}
	return nil
}

// expiryHeap implements heap.Interface.
type expiryHeap []*wait

func (h expiryHeap) Len() int { return len(h) }
func (h expiryHeap) Less(i, j int) bool {
	return cmp.Or(h[i].sorted.Compare(h[j].sorted), cmp.Compare(h[i].key, h[j].key)) < 0
}
func (h expiryHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *expiryHeap) Push(x any) {
	one := x.(*wait)
	one.place = len(*h)
	*h = append(*h, one)
}

func (h *expiryHeap) Pop() any {
	last := len(*h) - 1
	one := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	return one
}

// heard is when a record counts as come: in stream time, so that old events which are told again are no silence.
func (p *Processor) heard(now time.Time) time.Time {
	if p.streamTime.IsZero() { // all that came says it comes from the future
		return now.UTC()
	}
	return p.streamTime.UTC()
}

// isIdle reports whether the run that has waited longest expires at that time.
func (p *Processor) isIdle(at time.Time) bool {
	w := p.expiring.longest()
	return w != nil && !w.since.Add(p.cfg.IdleLimit).After(at)
}

// expire gives up, and closes, as many runs as the transaction has room for, and one at least; or it marks runs for a gap.
// Not below the processed offset, where all of that was decided.
func (p *Processor) expire(now time.Time) error {
	hasRoom := p.oneAtLeast()
	switch {
	case p.skip != nil:
		return p.markRawLost(now, hasRoom)
	case p.next < p.progress.Processed:
		return nil
	}
	for p.isIdle(p.streamTime) && hasRoom() { // those first that fell silent first
		if err := p.abandon(p.expiring.longest().key, now); err != nil {
			return err
		}
	}
	for p.isOld(now) && p.isUpToDate(now) && hasRoom() {
		r, err := p.loadByKey(p.closing.longest().key, now)
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

// oneAtLeast returns whether the transaction has room for one more run that expires. The first time it has, however full
// other partitions have made it: so no partition waits for ever.
func (p *Processor) oneAtLeast() (hasRoom func() bool) {
	first := true
	return func() bool {
		was := first
		first = false
		return was || p.room.expiries.Load() > 0
	}
}

// expireIdleOf gives up all runs of a thread that are silent, and notes when to look again.
func (p *Processor) expireIdleOf(t *thread, now time.Time) error {
	t.silentAt = p.streamTime.Add(p.cfg.IdleLimit) // what begins or goes on behind this
	var expiring []*wait
	for _, h := range t.open {
		if !h.Open() {
			continue
		}
		key, err := record.RunKey(t.tenant, t.id, h.ID)
		if err != nil {
			return fmt.Errorf("abandoning run: %w", err)
		}
		w := p.expiring.byKey[key]
		switch at := w.since.Add(p.cfg.IdleLimit); {
		case !at.After(p.streamTime):
			expiring = append(expiring, w)
		case at.Before(t.silentAt):
			t.silentAt = at
		}
	}
	slices.SortFunc(expiring, func(a, b *wait) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.key, b.key)) })
	for _, w := range expiring { // in the order in which expire does it
		if err := p.abandon(w.key, now); err != nil {
			return err
		}
	}
	return nil
}

// isOld reports whether the run that was abandoned first is to be closed by now.
func (p *Processor) isOld(now time.Time) bool {
	w := p.closing.longest()
	return w != nil && now.Sub(w.since)/closeAfter >= p.cfg.IdleLimit
}

// noteLogEnd takes in where the log ends by now.
func (p *Processor) noteLogEnd(offset int64, now time.Time) { p.logEnd, p.logEndAt = offset, now }

// isUpToDate reports whether all is read that the log held a moment ago, less than an idle limit. While the partition lags, no run is
// closed: unread events may belong to it. Lag is not judged by times of records: one fast clock would mislead.
func (p *Processor) isUpToDate(now time.Time) bool {
	return !p.logEndAt.IsZero() && p.next >= p.logEnd && now.Sub(p.logEndAt) < p.cfg.IdleLimit
}
