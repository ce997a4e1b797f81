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
// runs with a requested record, as resolutions may depend on them (writeUnsealed); Process stops once these are many (requestCheckpoint).
func (p *Processor) dueRuns(now time.Time, notDue func(*run)) (due []*run) {
	p.runs.relieve(p.limits.runBytes, p.room, now)
	var timely []*run
	for r := range p.runs.changed {
		switch {
		case r.due:
			due = append(due, r)
		case p.cfg.isDue(r, now):
			timely = append(timely, r)
		default:
			notDue(r)
		}
	}
	slices.SortFunc(timely, func(a, b *run) int {
		return cmp.Or(cmp.Compare(a.changedFrom, b.changedFrom), cmp.Compare(a.meta.Start, b.meta.Start))
	})
	for i, r := range timely {
		if i > 0 && p.room.checkpoints.Load() <= 0 { // one at least
			notDue(r)
			continue
		}
		due = append(due, r)
		p.room.checkpoints.Add(int64(-r.size()))
	}
	return due
}

// isDue reports whether the checkpoint rule wants a record of the run now. A run that grows by a whole record limit does not wait for the
// interval, as all its events since its last record are read again after a crash.
func (c Config) isDue(r *run, now time.Time) bool {
	age, grown := now.Sub(r.written.at), r.newBytes >= c.CheckpointFactor*r.written.bytes
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

// writeUnsealed requests a record of each open run of the thread whose parent resolution is in no record: see Processor.
func (t *thread) writeUnsealed() {
	for _, h := range t.Unsealed() {
		if r := h.live; r != nil && (!r.written.exists || r.unwritten != nil) {
			r.requestCheckpoint()
		}
	}
}

// checkpoint makes the record of an unsealed run. It returns nil if the record is over the limit, as a fold cannot resume from a truncated
// record. Such a run holds back the committed offset, and the checkpoint rule applies as if the record had been written. If its resolution
// has to be written now, checkpoint returns a record of the resolution alone. An expired run over the limit is closed, so that it does not
// hold back the committed offset for ever, but not below the processed offset (ledger.rebuilds).
func (r *run) checkpoint(now time.Time) (*Output, error) {
	p := r.thread.p
	if r.expired != nil {
		return r.expired, nil
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
	alone := r.due && r.unwritten != nil
	r.written.at, r.written.bytes, r.newBytes, r.due, r.overLimit = now, size, 0, false, true
	if alone {
		return r.resolutionRecord()
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
	return out, len(value), nil
}

// resolutionRecord makes a record of the run's parent resolution alone. The run's events, from the first one on, are read again after a
// crash. The record's contents fit the limit (Config.fits). Its other members may exceed the limit, and a batch has room for them
// (kafka.MaxBatchBytes).
func (r *run) resolutionRecord() (*Output, error) {
	p := r.thread.p
	resolved, before := r.unwritten, &r.unwritten.Before
	h := &threadRun{Metadata: fold.NewMetadata(r.meta.ID, r.meta.ClientID, r.meta.Start)}
	h.Next, h.LastAt, h.Placed = resolved.next, r.meta.LastAt, true
	was := newRun(r.thread, r.key, h, fold.NewRun(r.ThreadID, r.ID, r.ClientID), r.touchedAt)
	was.Seq, was.Producer, was.Input, was.InputSHA256 = before.Seq, before.Producer, before.Input, before.InputSHA256
	was.Tally.StartedAt, was.rec.RawLost = r.Tally.StartedAt, r.rec.RawLost
	was.ranges, was.Placed = record.NewRanges(resolved.ranges), resolved.Resolution
	maps.Copy(was.Early, before.Early)
	for _, rule := range resolved.Anomalies {
		was.Early[rule]++
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
		return nil, fmt.Errorf("encoding resolution of run: %w", err)
	}
	out, err := p.runOutput(r.key, rec, value, outputCheckpoint)
	if err != nil {
		return nil, err
	}
	out.run = r
	return out, nil
}
