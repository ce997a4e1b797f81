package compactor

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// A run of which nothing comes for the idle limit is abandoned: it has an end that yields to a real event. One of
// which nothing comes for closeAfter idle limits is closed: that end stays, and what comes later is handled as
// behind any end.
//
// Both follow from times of records alone, at P and above, or by the clock where everything is read. They are
// due at a moment, and done in portions: with the next transactions (giveUpSilent), but for a thread before its next record
// is looked at (giveUpSilentOf). So they are done when something of the thread could rest on them, and it makes no
// difference when the others are. A run is closed in a transaction with P or below it, as a run is that ends: what was placed
// beside it while it could go on is in a record by then (settle), and what comes behind finds it sealed, now and when
// it is read again.

// closeAfter is how many idle limits a run has that was abandoned: a week by default. Agents that wait for a person
// go on after days; and a run that may go on costs the partition memory, and its thread a record for each later run.
const closeAfter = 168

// silenceBytes is how many bytes of records are made at once, in a process, of runs that are given up; each counts for
// silenceCost at least, for what it takes to read, so that there are 1,024 at most, which take some tenths of a second.
const (
	silenceBytes = 4 << 20
	silenceCost  = 4 << 10
)

// givenUpAt is when a run is abandoned, or where it was, closed, whose last record is of a time.
func (c *Config) givenUpAt(open bool, last time.Time) time.Time {
	if open {
		return last.Add(c.IdleLimit)
	}
	if c.IdleLimit > math.MaxInt64/time.Duration(c.closeAfter) {
		return last.Add(math.MaxInt64)
	}
	return last.Add(c.IdleLimit * time.Duration(c.closeAfter))
}

// silentByClock has silence be judged by the clock, of a partition that is read to its end. Nobody is closed by it before
// nothing has come for an idle limit: times of records may lie far back, as where old ones are told again.
func (p *partition) silentByClock(now time.Time) {
	p.silentAt = later(p.silentAt, now)
	if p.readAt.IsZero() {
		p.readAt = now
	}
	if !now.Before(p.readAt.Add(p.cfg.IdleLimit)) {
		p.closingAt = later(p.closingAt, now)
	}
}

// lapsed reports whether a run is to be given up by now whose last record is of a time, and if it is not, when it will be.
func (p *partition) lapsed(open bool, last time.Time) (bool, time.Time) {
	at, now := p.cfg.givenUpAt(open, last), p.closingAt
	if open {
		now = p.silentAt
	}
	// What is not closed by the clock yet is looked at with the others, later.
	return !at.After(now), later(at, p.silentAt.Add(time.Nanosecond))
}

// silence is a run that may go on, by its record key, and the time of its last record when that was looked at.
type silence struct {
	key  string
	last time.Time
}

// giveUpSilent gives up the runs that have been silent for long enough, those first that fell silent first, as
// many as one transaction takes.
func (p *partition) giveUpSilent(now time.Time) error {
	if len(p.due) == 0 {
		if p.silentAt.IsZero() || p.silentAt.Before(p.nextSilent) {
			return nil
		}
		p.lookForSilent()
	}
	for left := p.mostSilence; left > 0 && len(p.due) > 0; p.due = p.due[1:] {
		key := p.due[0].key
		if !p.isSilent(key) { // it went on since, or was given up with others of its thread
			continue
		}
		t, _, err := p.headAt(key)
		if err != nil {
			return err
		}
		t.nextSilent = time.Time{}
		spent, err := p.giveUpSilentOf(t, left, now)
		if err != nil {
			return err
		}
		left -= spent
		if p.isSilent(key) { // others of its thread came first
			p.nextSilent = p.silentAt
		}
	}
	return nil
}

// lookForSilent goes through all runs that may go on.
func (p *partition) lookForSilent() {
	p.due = nil
	p.nextSilent = p.silentAt.Add(p.cfg.IdleLimit) // of what begins or goes on behind this
	for open, runs := range map[bool]map[string]time.Time{true: p.silent, false: p.abandoned} {
		for key, noted := range runs {
			last := p.lastAt(key, noted)
			if due, at := p.lapsed(open, last); due {
				p.due = append(p.due, silence{key, last})
			} else {
				p.nextSilent = earlier(p.nextSilent, at)
			}
		}
	}
	slices.SortFunc(p.due, func(a, b silence) int { return cmp.Or(a.last.Compare(b.last), cmp.Compare(a.key, b.key)) })
}

// isSilent reports whether a run is to be given up by now.
func (p *partition) isSilent(key string) bool {
	noted, open := p.silent[key]
	if !open {
		var ok bool
		if noted, ok = p.abandoned[key]; !ok {
			return false
		}
	}
	due, _ := p.lapsed(open, p.lastAt(key, noted))
	return due
}

// giveUpSilentOf is giveUpSilent for one thread, and returns how many bytes that came to. A thread of which more falls due
// than a portion has some of it wait for the next record or transaction: then it depends on batches what was done
// before a record, but not what becomes of it when it is read again.
func (p *partition) giveUpSilentOf(t *thread, most int, now time.Time) (spent int, err error) {
	if p.silentAt.Before(t.nextSilent) {
		return 0, nil
	}
	var due []*head
	next := p.silentAt.Add(p.cfg.IdleLimit) // of what begins or goes on behind this
	for _, h := range t.open {
		if is, at := p.lapsed(h.Open(), h.LastAt); is {
			due = append(due, h)
		} else {
			next = earlier(next, at)
		}
	}
	slices.SortFunc(due, func(a, b *head) int { return cmp.Or(a.LastAt.Compare(b.LastAt), cmp.Compare(a.Start, b.Start)) })
	for _, h := range due {
		if spent >= most {
			next = p.silentAt
			break
		}
		before := p.outputBytes
		if err := p.giveUp(t, h, now); err != nil {
			return spent, err
		}
		spent += max(silenceCost, p.outputBytes-before)
		if r := h.live; r != nil {
			spent += r.size()
		}
		if !h.Sealed {
			next = earlier(next, p.cfg.givenUpAt(false, h.LastAt))
		}
	}
	t.nextSilent = next
	return spent, nil
}

// giveUp abandons a run that is silent, or closes it.
func (p *partition) giveUp(t *thread, h *head, now time.Time) error {
	closing, _ := p.lapsed(false, h.LastAt)
	switch {
	case closing:
		r, err := p.load(t, h, now)
		if err != nil {
			return err
		}
		return p.close(r)
	case h.live != nil:
		return p.abandon(h.live)
	default:
		return p.abandonStored(t, h, now)
	}
}

// abandon gives up a run in memory, and asks for its record.
func (p *partition) abandon(r *run) error {
	p.waitFor(r.key, r.head)
	r.head.end(lineage.StatusAbandoned)
	r.due = true
	p.dirty[r] = struct{}{}
	p.counts.ended[record.StatusAbandoned]++
	if r.fold == nil {
		return nil
	}
	r.head.HistoryKey = lineage.KeyOf(r.fold.Messages())
	return r.thread.live(r.head, r.fold.Messages)
}

// waitFor notes that a run is abandoned, and when it will be closed.
func (p *partition) waitFor(key string, h *head) {
	delete(p.silent, key)
	p.abandoned[key] = h.LastAt
	p.nextSilent = earlier(p.nextSilent, p.cfg.givenUpAt(false, h.LastAt))
}

// abandonStored is abandon for a run that is not in memory, and stays out of it: its record has all but the end.
func (p *partition) abandonStored(t *thread, h *head, now time.Time) error {
	key, err := record.RunKey(t.tenant, t.id, h.ID)
	if err != nil {
		return fmt.Errorf("abandoning run: %w", err)
	}
	rec, _, err := p.recordOf(key)
	if err != nil {
		return err
	}
	giveUp(rec, h.LastAt, abandonment(p.cfg.IdleLimit))
	if fits, err := p.rewrite(key, rec, output{kind: outputAbandoned, ended: rec.Status}); err != nil {
		return err
	} else if !fits { // see checkpoint
		r, err := p.load(t, h, now)
		if err != nil {
			return err
		}
		return p.abandon(r)
	}
	p.waitFor(key, h)
	h.end(lineage.StatusAbandoned)
	if h.Pending {
		return nil
	}
	return t.lineage.Add(h.Run)
}

// rewrite writes the record of a run that is not in memory, changed but for what is open in it, and reports whether it
// could: the change may take it over the limit.
func (p *partition) rewrite(key string, rec *record.Run, as output) (fits bool, err error) {
	value, err := record.EncodeRun(rec)
	if err != nil {
		return false, fmt.Errorf("writing record of run anew: %w", err)
	}
	if len(value) > p.cfg.RecordLimit {
		return false, nil
	}
	out, err := p.runOutput(key, rec, value, as.kind)
	if err != nil {
		return false, err
	}
	out.ended = as.ended
	p.unsaved[key] = value
	p.write(*out)
	return true, nil
}

// close ends a run for good that was abandoned, or has been silent for so long that it is at once. It is an
// end like any other: its branch is written where that is due. A run of which only an input has come is where it
// would be if its first event came now.
func (p *partition) close(r *run) error {
	as := output{kind: outputClosed}
	if r.head.Open() {
		as.ended = record.StatusAbandoned
	}
	rec, _, err := p.describe(r)
	if err != nil {
		return err
	}
	giveUp(rec, r.head.LastAt, abandonment(p.cfg.IdleLimit))
	rec.Closed = true
	h, err := headOf(rec)
	if err != nil {
		return err
	}
	h.live = r
	*r.head = *h
	return p.end(r, rec, r.base, as)
}

// lastAt is when the last record of a run came that is not sealed.
func (p *partition) lastAt(key string, noted time.Time) time.Time {
	if r := p.runs[key]; r != nil {
		return r.head.LastAt
	}
	return noted
}

// anySilent reports whether a run is to be given up at that time.
func (p *partition) anySilent(at time.Time) bool {
	if at.Before(p.nextSilent) {
		return false
	}
	for open, runs := range map[bool]map[string]time.Time{true: p.silent, false: p.abandoned} {
		for key, noted := range runs {
			if !p.cfg.givenUpAt(open, p.lastAt(key, noted)).After(at) {
				return true
			}
		}
	}
	return false
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
