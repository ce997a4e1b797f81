package compactor

import "time"

// skip is what a partition has to do before it goes on behind events that are gone. Which runs had events there
// nobody can say: each that may go on is marked, a portion in a transaction. Until then nothing is read, and the group's
// offset stays as it is: a process that dies in between begins again, and marks the others.
type skip struct {
	to    int64    // the next record then
	marks []string // the runs that are to be marked, by record key
}

// skipTo has a partition that was opened just now go on at an offset above the next one.
func (p *partition) skipTo(offset int64) error {
	p.skip = &skip{to: offset}
	return p.store.openRuns(func(key string, h *head) {
		if !h.RawLost {
			p.skip.marks = append(p.skip.marks, key)
		}
	})
}

// markLost marks as many runs as the next transaction takes, or goes on where all are marked.
func (p *partition) markLost(now time.Time) error {
	if len(p.skip.marks) == 0 {
		p.next = p.skip.to
		p.position.decidedOffset = max(p.position.decidedOffset, p.next)
		p.skip = nil
		return nil
	}
	for ; p.portion > 0 && len(p.skip.marks) > 0; p.skip.marks = p.skip.marks[1:] {
		r, err := p.bring(p.skip.marks[0], now)
		if err != nil {
			return err
		}
		r.rec.RawLost, r.head.RawLost, r.due = true, true, true
		p.dirty[r] = struct{}{}
	}
	return nil
}
