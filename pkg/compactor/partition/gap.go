package partition

import (
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
)

// gap is a range of raw events that are gone. It is not known which runs had events there, so each unsealed run whose record ends
// before the end of the gap is marked rawLost, as many in a transaction as it has room for. Until all are marked, nothing is read and
// the group's offset stays: after a crash the next process marks the rest. A run may also have begun in the gap: see mayHaveBegunInGap.
type gap struct {
	to    int64    // the next record after the gap
	marks []string // record keys of the runs to mark
	lost  int64    // offsets that were never read, for the metric
}

// openGap makes a partition that was just opened resume at a higher offset. The number lost is counted once it resumes.
func (p *Processor) openGap(offset, lost int64) error {
	p.gap = &gap{to: offset, lost: lost}
	return p.store.EachUnsealed(func(key string, _ time.Time, h *fold.Metadata) {
		if !h.RawLost && h.Next < offset {
			p.gap.marks = append(p.gap.marks, key)
		}
	})
}

// markRawLost marks as many runs as the next transaction has room for. Once all are marked, the partition resumes.
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
		r.rawLost, r.meta.RawLost, r.due = true, true, true
		p.runs.change(r)
	}
	return nil
}

// closeGap sets the stream time until which a new run may have begun in the gap: one idle limit from now, as such a run would have expired
// then. It is called at the first record after the gap that moves stream time.
func (l *ledger) closeGap() {
	if l.progress.Gap.End > 0 && l.progress.Gap.Until == 0 {
		l.progress.Gap.Until = l.clock.stream.Add(l.cfg.IdleLimit).UnixMilli()
	}
}

// mayHaveBegunInGap reports whether a run may have begun in a gap because first, its first event that was read, is not a RUN_STARTED. It
// depends on the committed progress only, so the result is the same when the event is read again.
func (l *ledger) mayHaveBegunInGap(first *agui.Event, now time.Time) bool {
	gap := l.progress.Gap
	return first.Type != agui.RunStarted && gap.End > 0 && (gap.Until == 0 || l.clock.recordTime(now).UnixMilli() < gap.Until)
}
