package partition

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// The life of a run. Only methods of fold.Metadata and threadRun.close change its state, and each has one caller besides noteEvent:
//
//	state    begins with                                  until
//	pending  an input (thread.New)                        its first event, which resolves its parent for good (decide)
//	open     its first event (decide), or a record after  its terminal event (seal), or the idle limit without a record
//	         it expired (reactivate)                      (expireRun)
//	expired  the idle limit (expireRun), pending or open  a record of the run (reactivate), 168 idle limits, or a record over the
//	                                                      limit (close)
//	sealed   any of these ends (seal, close)              an erasure: only failLate writes its record again, once
//
// A run that expired before its first event is still pending: its record has a preliminary parent resolution.

// seal ends a run whose terminal event was folded: it makes its final record, and has its branch await a snapshot if one is due. Later runs
// build on the history restored from that record, not on the fold in memory, so they get the same history before and after a restart.
func (r *run) seal() error {
	p := r.thread.p
	rec, base, err := r.build()
	if err != nil {
		return err
	}
	at, err := lineage.RestoreFrom(base, fold.ContentOf(rec))
	if err != nil {
		return fmt.Errorf("sealing run: %w", err)
	}
	h := r.meta
	h.Seal(lineage.Status(rec.Status), rec.Synthetic)
	h.SinceSnapshot = r.sinceSnapshot(rec, at)
	whole, err := r.wantsSnapshot(at)
	if err != nil {
		return err
	}
	if whole { // and only then 0: see awaitAgain
		h.SinceSnapshot = 0
	} else {
		h.SinceSnapshot = max(1, h.SinceSnapshot)
	}
	rec.SinceSnapshot = h.SinceSnapshot
	out, err := r.finish(rec, outputSealed)
	if err != nil {
		return err
	}
	p.write(*out)
	p.counts.Ended[rec.Status]++
	if rec.Truncated { // since at was restored
		if at, err = lineage.RestoreFrom(base, fold.ContentOf(rec)); err != nil {
			return fmt.Errorf("sealing run: %w", err)
		}
	}
	p.histories.put(r.key, at.Share()) // for the next turn
	if whole {
		r.thread.await(h, at.Bytes())
	}
	return nil
}

// failLate writes the record of a sealed run once more, as its agent said after the end that it had failed. Its place, history and proof
// stay, so nothing that was decided by them changes. A reader of the same events finds the run failed, and writes nothing.
func (t *thread) failLate(offset int64) error {
	h, p := t.Member, t.p
	rec, err := t.Record(h)
	if err != nil {
		return err
	}
	rec.FailLate(record.LateError{Offset: offset, Event: bytes.Clone(p.loop.Decoded().Payload().Body)})
	value, err := record.FitLate(rec, p.cfg.RecordLimit)
	if err != nil {
		return err
	}
	h.Status = lineage.StatusError
	key := t.runKey(h.ID)
	p.unsaved.records[key] = value
	out, err := p.runOutput(key, rec, value, outputLateError)
	if err == nil {
		p.write(*out)
	}
	return err
}

// reactivate reopens an expired run when a record of the run comes. It requests a checkpoint, as the run holds back the progress record
// until a record shows it as open (addProgressRecord).
func (r *run) reactivate() error {
	p := r.thread.p
	if !r.meta.IsExpired() {
		return nil
	}
	r.meta.Reactivate()
	r.requestCheckpoint()
	p.retirement.closing.drop(r.key)
	r.expiry = p.retirement.expiring.add(r.key, p.clock.recordTime(r.touchedAt))
	return r.show()
}

// finish makes the final record of a run and evicts the run.
func (r *run) finish(rec *record.Run, kind string) (*Output, error) {
	p := r.thread.p
	rec.Truncated = rec.Cut != nil
	value, err := record.Fit(rec, p.cfg.RecordLimit)
	if err != nil {
		return nil, err
	}
	r.meta.Truncated, r.meta.Interrupts = rec.Truncated, fold.LineageOf(rec).Interrupts
	p.unsaved.put(r.thread.key, r.key, value, r.meta.End, rec.Messages)
	p.runs.drop(r)
	p.retirement.expiring.drop(r.key)
	p.retirement.closing.drop(r.key)
	if err := r.thread.seal(r.meta); err != nil {
		return nil, err
	}
	out, err := p.runOutput(r.key, rec, value, kind)
	if err == nil && kind != outputClosed {
		err = r.tellEnded(out, rec)
	}
	return out, err
}

// tellEnded sets Output.Ended, if it is wanted.
func (r *run) tellEnded(out *Output, rec *record.Run) (err error) {
	if !r.thread.p.cfg.TellEnded {
		return nil
	}
	out.Ended = rec
	if rec.ParentRunID != "" {
		out.ParentTraceparent, err = r.thread.traceparent(rec.ParentRunID)
	}
	return err
}

// expireRun expires a run and makes its record. If the record is over the limit, expireRun closes the run at once, so that the run does not
// hold back the committed offset for ever, and the result does not depend on what else the transaction contains.
func (e *retirement) expireRun(key string, now time.Time) error {
	r, err := e.p.loadByKey(key, now)
	if err != nil {
		return err
	}
	if err := r.expireLoaded(now); err != nil {
		return err
	}
	if r.expired, _, err = r.openRecord(e.p.cfg.RecordLimit); err != nil || r.expired != nil {
		return err
	}
	return r.writeClosed(outputAbandoned)
}

// endEarly ends a run because of a limit that the terminal event names. A run that has expired keeps its expiry event.
func (r *run) endEarly(terminal json.RawMessage, kind string, now time.Time) error {
	if !r.meta.IsExpired() {
		r.ending = terminal
		if err := r.expireLoaded(now); err != nil {
			return err
		}
	}
	return r.writeClosed(kind)
}

// expireLoaded expires a run in memory.
func (r *run) expireLoaded(now time.Time) error {
	p := r.thread.p
	p.retirement.expiring.drop(r.key)
	r.expiry = p.retirement.closing.add(r.key, now)
	r.meta.Expire()
	r.due = true
	p.runs.change(r)
	p.counts.Ended[record.StatusAbandoned]++
	if r.Fold != nil {
		r.meta.HistoryKey = lineage.KeyOf(r.Fold.Messages())
	}
	return r.show()
}

// close makes the final record of an expired run.
func (r *run) close(kind string) (*Output, error) {
	rec, base, err := r.build()
	if err != nil {
		return nil, err
	}
	if r.Placed != nil { // its parent is resolved, and its first event is not read again yet
		base = r.Placed.Base
	}
	at, err := lineage.RestoreFrom(base, fold.ContentOf(rec))
	if err != nil {
		return nil, fmt.Errorf("closing run: %w", err)
	}
	rec.Open, rec.Closed = nil, true
	if err := r.meta.close(rec); err != nil {
		return nil, err
	}
	r.meta.SinceSnapshot = r.sinceSnapshot(rec, at)
	rec.SinceSnapshot = r.meta.SinceSnapshot
	return r.finish(rec, kind)
}

// writeClosed closes an expired run and writes its final record with the next transaction.
func (r *run) writeClosed(kind string) error {
	out, err := r.close(kind)
	if err != nil {
		return err
	}
	r.thread.p.write(*out)
	return nil
}

// markExpired sets in a record that Skein ended the run with the event terminal.
func (r *run) markExpired(rec *record.Run, terminal json.RawMessage) {
	lastAt := r.meta.LastAt
	rec.Status, rec.Synthetic, rec.EndedAt, rec.Terminal = record.StatusAbandoned, true, &lastAt, terminal
}

// expiryEvent is the synthetic terminal event of an expired run.
func expiryEvent(limit time.Duration) json.RawMessage {
	return agui.RunErrorOf("The run was silent for longer than "+limit.String()+".", codeAbandoned)
}
