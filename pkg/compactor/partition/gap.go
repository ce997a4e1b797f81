package partition

import (
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/record"
)

// skip is what a partition has to do before it goes on behind events that are gone. Which runs had events there
// nobody can say: each that may go on is marked, if its record does not reach behind them, as far as a transaction has room. Until then nothing
// is read, and the group's offset stays as it is: a process that dies in between begins again, and marks the others. Of a run that began there
// nobody knows: see mayHaveBegunInGap.
type gap struct {
	to    int64    // the next record then
	marks []string // the runs that are to be marked, by record key
	lost  int64    // offsets that were never read, for the metric
}

// openGap has a partition that was opened just now go on at an offset above the next one. lost is what it counts for that once it has.
func (p *Processor) openGap(offset, lost int64) error {
	p.gap = &gap{to: offset, lost: lost}
	return p.store.EachUnsealed(func(key string, _ time.Time, h *runstore.Metadata) {
		if !h.RawLost && h.Next < offset {
			p.gap.marks = append(p.gap.marks, key)
		}
	})
}

// markRawLost marks as many runs as the next transaction takes, or goes on where all are marked.
func (p *Processor) markRawLost(now time.Time, hasRoom func() bool) error {
	if len(p.gap.marks) == 0 {
		p.next = p.gap.to
		p.progress.Processed = max(p.progress.Processed, p.next)
		p.progress.Gap = record.Gap{End: p.next}
		p.counts.Lost += p.gap.lost
		p.gap = nil
		return nil
	}
	for ; len(p.gap.marks) > 0 && hasRoom(); p.gap.marks = p.gap.marks[1:] {
		r, err := p.loadByKey(p.gap.marks[0], now)
		if err != nil {
			return err
		}
		r.rec.RawLost, r.meta.RawLost, r.due = true, true, true
		p.runs.change(r)
	}
	return nil
}

// closeGap notes, with the first record that moves stream time behind a gap, until when a run may have begun there: once an idle limit
// has gone by, it has spoken again, or counts as silent.
func (p *Processor) closeGap() {
	if p.progress.Gap.End > 0 && p.progress.Gap.Until == 0 {
		p.progress.Gap.Until = p.clock.stream.Add(p.cfg.IdleLimit).UnixMilli()
	}
}

// mayHaveBegunInGap reports whether a run that shows itself with this event may have begun where raw is gone: it is not how a run
// begins. That rests on what the position says, so it comes out the same when the event is read again.
func (p *Processor) mayHaveBegunInGap(first *agui.Event, now time.Time) bool {
	gap := p.progress.Gap
	return first.Type != agui.RunStarted && gap.End > 0 && (gap.Until == 0 || p.clock.recordTime(now).UnixMilli() < gap.Until)
}
