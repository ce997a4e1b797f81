package query

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/tail"
)

const (
	// freshWait is how long a read of a thread or run waits for the index, if skein.events has events of the thread that it lacks.
	freshWait = 2 * time.Second
	// logEndWait bounds the request for the end of the log, and awayFor is how long reads do without it after one that failed.
	logEndWait, awayFor = time.Second, 5 * time.Second
)

// logEnd returns the position after the last event that the thread's partition had when the request arrived. Its offset is -1 if Kafka
// does not say: then reads answer from the index and the records of open runs alone.
func (c *call) logEnd() (record.Position, error) {
	none := record.Position{Offset: -1}
	if time.Now().UnixNano() < c.awayUntil.Load() {
		return none, nil
	}
	key, err := record.ThreadKey(c.Tenant, c.threadID)
	if err != nil {
		return none, nil //nolint:nilerr // no thread has such an id
	}
	at := none
	err = c.load.pause(c.R.Context(), func() error {
		ctx, cancel := context.WithTimeout(c.R.Context(), min(logEndWait, c.cfg.Wait))
		defer cancel()
		partition, err := c.tail.Partition(ctx, key)
		if err == nil {
			at.Offset, err = c.tail.End(ctx, partition)
		}
		if at.Partition = partition; err != nil {
			at = none
			if c.R.Context().Err() == nil {
				c.awayUntil.Store(time.Now().Add(awayFor).UnixNano())
			}
		}
		return nil
	})
	return at, err // the slot was not to be had again
}

// follow reads the thread's events below the end of the log that the index, which has all below indexed, lacks. It replaces the rows of
// open runs in the view by the records that these would get now, and returns the last event that changes another row: -1 if the view lacks
// none.
func (c *call) follow(v *view, indexed int64, end record.Position) (lacks int64, _ error) {
	open := slices.ContainsFunc(v.runs, func(r store.Run) bool { return r.Status == record.StatusRunning })
	if end.Offset < 0 || !open && indexed >= end.Offset {
		return -1, nil
	}
	lacks = -1
	err := c.load.pause(c.R.Context(), func() (err error) { // the follower takes slots and memory of its own
		of := &call{Service: c.Service, Call: c.Call, threadID: c.threadID, load: c.room.load(c.Tenant)}
		defer of.load.close()
		ctx, cancel := context.WithTimeoutCause(c.R.Context(), min(freshWait, c.cfg.Wait), errWaited)
		defer cancel()
		ctx, _ = of.load.metered(ctx)
		s, err := of.newStream(ctx, "", joining())
		if err != nil {
			return err
		}
		s.partition, s.until = end.Partition, end.Offset
		defer s.close()
		if !open {
			lacks, err = s.lastFrom(indexed)
			return err
		}
		if err := s.load.withSlot(ctx, s.openOnce); err != nil {
			return err
		}
		if err := s.toEnd(); err != nil {
			return err
		}
		lacks, err = c.overlay(v, s)
		return err
	})
	_, refused := errors.AsType[*front.Problem](err) // for lack of slots or memory
	switch {
	case err == nil || c.R.Context().Err() != nil || refused || errors.Is(err, errBehind):
		return lacks, err
	case !errors.Is(err, errWaited) && !errors.Is(err, context.DeadlineExceeded):
		c.cfg.Logger.WarnContext(c.R.Context(), "read is answered from the index alone, as its events cannot be followed", "tenant", c.Tenant,
			"thread_id", c.threadID, "error", err)
	}
	return -1, nil
}

// lastFrom returns the offset of the thread's last record from an offset to the end of the log; -1 if there is none.
func (s *stream) lastFrom(offset int64) (int64, error) {
	last := int64(-1)
	if err := s.follow(offset); err != nil {
		return last, err
	}
	for !s.caughtUp() {
		b, err := s.reader.Next(s.ctx)
		if err != nil {
			return last, err
		}
		for _, m := range s.below(b.Records) {
			last = m.Offset
		}
		s.through = b.Through
	}
	return last, nil
}

// below returns the records before the end at which a read ends.
func (s *stream) below(records []*kgo.Record) []*kgo.Record {
	i, _ := slices.BinarySearchFunc(records, s.until, func(m *kgo.Record, end int64) int { return cmp.Compare(m.Offset, end) })
	return records[:i]
}

// toEnd takes the thread's records up to the end of the log.
func (s *stream) toEnd() error {
	for !s.caughtUp() {
		b, err := s.reader.Next(s.ctx)
		if errors.Is(err, tail.ErrGone) {
			if err = s.skip(); err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		b.Records = s.below(b.Records)
		if err := s.takeInTurn(b); err != nil {
			return err
		}
		if err := s.weigh(); err != nil {
			return err
		}
	}
	return nil
}

// overlay replaces the rows of open runs by the followed thread's current records, and keeps these for restore. It returns the last event
// that changes another row. The error is errBehind if the view is older than the thread.
func (c *call) overlay(v *view, s *stream) (lacks int64, err error) {
	if s.rows == nil { // erased
		return s.until - 1, nil
	}
	lacks, c.open = -1, map[string]*record.Run{}
	indexed := byID(s.rows)
	for _, r := range s.thread.Runs() {
		row, ok := indexed[r.ID]
		if !ok || r.Open() != (row.Status == record.StatusRunning) ||
			(r.LateError == nil) != (row.LateError == nil) {
			lacks = max(lacks, r.Next-1)
			continue
		}
		rec, err := s.thread.Current(r)
		if err != nil {
			return lacks, err
		}
		if rec != nil {
			c.open[r.ID] = rec
			err = c.load.take(answerBytes(rec.Messages, rec.State) / answerCopies)
		}
		if err != nil {
			return lacks, err
		}
	}
	shown := byID(v.runs)
	for id := range indexed {
		if _, ok := shown[id]; !ok && (len(v.runs) > 1 || c.runID == "") {
			err = errBehind
		}
	}
	v.runs = slices.Clone(v.runs)
	for i := range v.runs {
		if v.runs[i].Status == record.StatusRunning && !c.isOpen(&v.runs[i]) {
			err = errBehind
		}
	}
	return lacks, err
}

// isOpen reports whether read has followed a run that the index shows as open, and sets the row to what the run is now.
func (c *call) isOpen(row *store.Run) bool {
	rec := c.open[row.RunID]
	if rec == nil || row.Status != record.StatusRunning {
		return false
	}
	row.Run = *rec
	row.Messages, row.InputMessages, row.State = nil, nil, nil
	return true
}
