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

// dueRuns returns the runs to write now, and calls notDue for each changed run that is not. If very many are due at the
// same moment, a transaction takes as many as it has room for, those with the oldest unwritten events first, so that the committed
// offset moves with each. Requested records are written in any case, as resolutions may depend on that (writeUnsealed): Process
// stops once these are many (requestCheckpoint).
func (p *Processor) dueRuns(now time.Time, notDue func(*run)) (due []*run) {
	p.runs.relieve(p.share.runBytes, p.room, now)
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

// isDue is the checkpoint rule. A run that grows by a whole record limit does not wait for the interval: after a crash all its events
// since its last record are read again.
func (c Config) isDue(r *run, now time.Time) bool {
	age, grown := now.Sub(r.written.at), r.newBytes >= c.CheckpointFactor*r.written.bytes
	return age >= c.CheckpointMax || grown && (age >= c.CheckpointInterval || r.newBytes >= c.RecordLimit)
}

// requestCheckpoint requests a record of a run in the next transaction, whatever the checkpoint rule says.
func (r *run) requestCheckpoint() {
	p := r.thread.p
	if !r.due {
		r.due = true
		p.room.outputs.Add(int64(-r.size()))
	}
}

// writeUnsealed requests a record of each open run of the thread that has none, or none with its parent resolution: see Processor.
func (t *thread) writeUnsealed() {
	for _, h := range t.Unsealed() {
		if r := h.live; r != nil && (!r.written.exists || r.unwritten != nil) {
			r.requestCheckpoint()
		}
	}
}

// checkpoint makes the record of an unsealed run. If that is over the limit, it returns none, as a fold cannot resume from a record that
// was cut; the run holds back the committed offset, and is tried again by the same rule as if it had been written. If its resolution
// has to be written now, it returns a record of the resolution alone. An expired run is closed instead, so that it does not
// hold back the committed offset for ever.
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
	case r.meta.IsExpired(): // the limit was changed
		return r.close(outputAbandoned)
	}
	alone := r.due && r.unwritten != nil
	r.written.at, r.written.bytes, r.newBytes, r.due, r.overLimit = now, size, 0, false, true
	if alone {
		return r.resolutionRecord()
	}
	return nil, nil
}

// lateRoom is by how much the record of an expired run may be over the limit: later events that do not reopen it add ranges and anomalies.
// Without it, whether the run is closed would depend on what else the transaction holds. It also applies to a run without unwritten
// events, which has only been marked (markRawLost): nothing holds back the committed offset for it, so a crash would lose the mark.
const lateRoom = 8 << 10

// openRecord makes the record of an unsealed run, from which it can resume, and returns its size. If that is over the limit, out is nil.
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

// resolutionRecord makes a record of a run that has its parent resolution and nothing from its first event on: that is read
// again. It may be over the limit by what a record holds beside content, for which a batch has room (kafka.MaxBatchBytes); the rest
// fits (Config.fits).
func (r *run) resolutionRecord() (*Output, error) {
	p := r.thread.p
	resolved, before := r.unwritten, &r.unwritten.Before
	h := &threadRun{Metadata: fold.NewMetadata(r.meta.ID, r.meta.ClientID, r.meta.Start)}
	h.Next, h.LastAt, h.Placed = resolved.next, r.meta.LastAt, true
	was := newRun(r.thread, r.key, h, fold.NewRun(r.ThreadID, r.ID, r.ClientID), r.touchedAt)
	was.Seq, was.Producer, was.Input, was.InputSHA256 = before.Seq, before.Producer, before.Input, before.InputSHA256
	was.Tally.StartedAt, was.rec.RawLost, was.ranges, was.Placed = r.Tally.StartedAt, r.rec.RawLost, record.NewRanges(resolved.ranges), resolved.Resolution
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
