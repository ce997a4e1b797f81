package partition

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
)

// dueRuns returns the runs to write now, and calls notDue for each changed run that is not written now. A transaction takes as many due
// runs as it has room for, those with the oldest unwritten events first, so that each transaction moves the committed offset. It takes all
// runs with a requested record and all that no record announces (announce); Process stops once these are many.
func (p *Processor) dueRuns(now time.Time, notDue func(*run)) (due []*run) {
	p.runs.relieve(p.limits.runBytes, p.room, now)
	var timely []*run
	for r := range p.runs.changed {
		switch {
		case r.again && r.Fold == nil && p.rebuilds(): // what comes next is known already
			notDue(r)
		case r.due:
			due = append(due, r)
		case p.cfg.isDue(r, now):
			timely = append(timely, r)
		case r.unannounced():
			due = append(due, r)
		default:
			notDue(r)
		}
	}
	slices.SortFunc(timely, func(a, b *run) int {
		return cmp.Or(cmp.Compare(a.changedFrom, b.changedFrom), cmp.Compare(a.meta.Start, b.meta.Start))
	})
	for i, r := range timely {
		switch {
		case i == 0 || p.room.checkpoints.Load() > 0: // one at least
			r.due = true
			p.room.checkpoints.Add(int64(-r.size()))
		case !r.unannounced():
			notDue(r)
			continue
		}
		due = append(due, r)
	}
	return due
}

// isDue reports whether the checkpoint rule wants a record of the run now. A run that grows by a whole record limit does not wait for the
// interval, as all its events since its last record are read again after a crash.
func (c Config) isDue(r *run, now time.Time) bool {
	age, grown := now.Sub(r.written.at), r.newBytes >= c.CheckpointFactor*r.written.bytes && (!r.again || r.Fold != nil)
	return age >= c.CheckpointMax || grown && (age >= c.CheckpointInterval || r.newBytes >= c.RecordLimit)
}

// requestCheckpoint makes the next transaction write a record of the run, regardless of the checkpoint rule.
func (r *run) requestCheckpoint() {
	p := r.thread.p
	if !r.due {
		r.due = true
		p.room.outputs.Add(int64(-r.size()))
	}
}

// unannounced reports whether no committed record has the run or its final parent resolution.
func (r *run) unannounced() bool {
	return !r.written.exists && (!r.again || r.Fold != nil) || r.unwritten != nil
}

// announcementBytes is about the size of an announcement without a parent's messages.
const announcementBytes = 1 << 10

// checkpoint makes the record of an unsealed run. It returns nil if the record is over the limit, as a fold cannot resume from a truncated
// record. Such a run holds back the committed offset, and the checkpoint rule applies as if the record had been written. A run that no
// record announces gets an announcement, unless a whole record is requested and fits. An expired run over the limit is closed, so that it
// does not hold back the committed offset for ever, but not below the processed offset (ledger.rebuilds).
func (r *run) checkpoint(now time.Time) (*Output, error) {
	p := r.thread.p
	switch {
	case r.expired != nil:
		return r.expired, nil
	case !r.due && r.unannounced():
		return r.announce()
	}
	limit := p.cfg.RecordLimit
	if r.meta.IsExpired() || r.changedFrom < 0 {
		limit += lateRoom
	}
	out, size, err := r.openRecord(limit)
	switch {
	case err != nil:
		return nil, err
	case out != nil:
		return out, nil
	case r.meta.IsExpired() && !p.rebuilds(): // the limit was lowered
		return r.close(outputAbandoned)
	}
	r.written.at, r.written.bytes, r.newBytes, r.due, r.overLimit = now, size, 0, false, true
	if r.unannounced() && r.meta.Open() {
		return r.announce()
	}
	return nil, nil
}

// lateRoom is how far the record of an expired run may exceed the limit, as later events that do not reopen the run add ranges and
// anomalies. Without it, whether the run is closed would depend on what else the transaction contains. It also applies to a run that was
// only marked (markRawLost): such a run does not hold back the committed offset, so a crash would lose the mark.
const lateRoom = 8 << 10

// openRecord makes a record from which the unsealed run can resume, and returns its size. out is nil if the record is over the limit.
func (r *run) openRecord(limit int) (out *Output, size int, err error) {
	p := r.thread.p
	rec, _, err := r.build()
	if err != nil {
		return nil, 0, err
	}
	if rec.Open == nil {
		return nil, record.LeastBytes(rec), nil
	}
	value, err := record.EncodeRun(rec)
	if err != nil || len(value) > limit {
		return nil, len(value), err
	}
	kind := outputCheckpoint
	if r.meta.IsExpired() {
		kind = outputAbandoned
	}
	if out, err = p.runOutput(r.key, rec, value, kind); err != nil {
		return nil, 0, err
	}
	out.run = r
	if kind == outputAbandoned {
		err = r.tellEnded(out, rec)
	}
	return out, len(value), err
}

// announce makes a record by which readers of skein.runs know that an open run exists: its parent resolution, agent and labels, and what an
// earlier record covers, as a rule nothing. The run holds back the committed offset, so its other events are read again after a crash. The
// record's contents fit the limit (Config.fits). Its other members may exceed the limit, and a batch has room for them
// (kafka.MaxBatchBytes).
func (r *run) announce() (*Output, error) {
	p := r.thread.p
	h := &threadRun{Metadata: fold.NewMetadata(r.meta.ID, r.meta.ClientID, r.meta.Start)}
	h.Next, h.LastAt = r.meta.Start, r.meta.LastAt
	was := newRun(r.thread, r.key, h, fold.NewRun(r.ThreadID, r.ID, r.ClientID), r.touchedAt)
	// Agent and labels are for readers: fold.Resume takes them from the events again.
	was.Producer, was.Tally.StartedAt, was.rawLost, was.kept = r.Producer, r.Tally.StartedAt, r.rawLost, r.kept
	if resolved := r.unwritten; resolved != nil {
		h.Placed, was.Placed = true, resolved.Resolution
		if r.written.exists && r.changedFrom > r.meta.Start {
			was.coverBefore(resolved)
		}
		for _, rule := range resolved.Anomalies {
			was.Early[rule]++
		}
	} else { // preliminary, so no fold starts from what its parent had said
		at, err := r.thread.Lineage.Place(fold.StartOf(h.ID, h.ClientRunID(), nil, r.Input, p.next))
		if err != nil {
			return nil, err
		}
		at.Run.Base = ""
		was.Placed = &fold.Resolution{Placement: at}
	}
	rec, folded, err := was.describe()
	if err != nil {
		return nil, err
	}
	if err := was.buildOpen(rec, folded); err != nil {
		return nil, err
	}
	value, err := record.EncodeRun(rec)
	if err != nil {
		return nil, fmt.Errorf("encoding announcement of run: %w", err)
	}
	out, err := p.runOutput(r.key, rec, value, outputCheckpoint)
	if err != nil {
		return nil, err
	}
	out.run, out.announces = r, true
	return out, nil
}

// coverBefore sets what the run was before its first event, which a record covers: its input came in an earlier transaction.
func (r *run) coverBefore(resolved *resolution) {
	before := resolved.Before
	r.Seq, r.Producer, r.Input, r.InputSHA256 = before.Seq, before.Producer, before.Input, before.InputSHA256
	r.meta.Next, r.ranges = resolved.next, record.NewRanges(resolved.ranges)
	r.FirstMalformed = before.FirstMalformed
	maps.Copy(r.Early, before.Early)
}
