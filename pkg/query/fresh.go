package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/tail"
)

const (
	// freshWait is how long a read of a thread or run waits for the index, and follows the thread, if skein.events has events of the thread
	// that the index lacks. A follow takes at least followWait, so that the last one of a read may reach the end.
	freshWait, followWait = 2 * time.Second, 200 * time.Millisecond
	// logEndWait bounds the request for the end of the log, and awayFor is how long reads do without it after one that failed.
	logEndWait, awayFor = time.Second, 5 * time.Second
)

// errUnknown means that a read does not know whether rows lack events: Kafka does not say, or following the thread took too long or
// too much memory.
var errUnknown = errors.New("it is not known what the index lacks")

// logEnd returns the position after the last event that the thread's partition had when the request arrived, or errUnknown.
func (c *call) logEnd() (end record.Position, err error) {
	key, err := record.ThreadKey(c.Tenant, c.threadID)
	if err != nil { // no thread has such an id
		return record.Position{Offset: -1}, nil //nolint:nilerr // the store finds none
	}
	err = c.load.pause(c.R.Context(), func() (err error) {
		ctx, cancel := context.WithTimeout(c.R.Context(), min(logEndWait, c.cfg.Wait))
		defer cancel()
		known := false
		if end.Partition, err = c.tail.Partition(ctx, key); err == nil {
			if until, away := c.awayUntil.Load(end.Partition); away && time.Now().Before(until.(time.Time)) {
				return errUnknown
			}
			known = true
			end.Offset, err = c.tail.End(ctx, end.Partition)
		}
		if err == nil || c.R.Context().Err() != nil {
			return err
		}
		if known {
			c.awayUntil.Store(end.Partition, time.Now().Add(awayFor))
		}
		c.cfg.Logger.WarnContext(ctx, "reads are answered from the index alone, as the end of the log is not known", "partition", end.Partition,
			"error", err)
		return fmt.Errorf("%w: %w", errUnknown, err)
	})
	if err != nil {
		end.Offset = -1
	}
	return end, err
}

// follow finds the thread's events below the end of the log that the index, which has all below indexed, lacks. It replaces the rows of
// open runs in the view by the records that these would get now, and returns the last event that changes another row: -1 if the view lacks
// none. The error is errUnknown, or errBehind if the rows do not fit the thread.
func (c *call) follow(v *view, indexed int64, end record.Position, until time.Time) (lacks int64, err error) {
	c.forgetOpen()
	open := slices.ContainsFunc(v.runs, func(r store.Run) bool { return r.Status == record.StatusRunning })
	switch {
	case !open && indexed >= end.Offset:
		return -1, nil
	case !open && end.Offset-indexed > c.cfg.Tail.Window: // reading that much takes longer than the index
		return end.Offset - 1, nil
	}
	err = c.load.pause(c.R.Context(), func() error { // the follower takes slots and memory of its own
		of := &call{Service: c.Service, Call: c.Call, threadID: c.threadID, details: c.details, load: c.room.load(c.Tenant)}
		defer of.load.close()
		until := time.Now().Add(max(time.Until(until), followWait))
		ctx, cancel := context.WithDeadlineCause(c.R.Context(), until, errUnknown)
		defer cancel()
		ctx, _ = of.load.metered(ctx)
		s, err := of.newStream(ctx, "", joining())
		switch s.partition, s.until = end.Partition, end.Offset; {
		case err != nil:
		case open:
			lacks, err = c.followOpen(v, s, indexed)
		default:
			lacks, err = s.lastFrom(indexed)
			v.erase(s.erasedAt)
		}
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return err
	})
	_, refused := errors.AsType[*front.Problem](err) // for lack of slots, or of memory: the rows of the index may fit all the same
	if err == nil || c.R.Context().Err() != nil || refused && !isNoRoom(err) || errors.Is(err, errBehind) {
		return lacks, err
	}
	c.forgetOpen()
	if !errors.Is(err, errUnknown) && !refused {
		c.cfg.Logger.WarnContext(c.R.Context(), "read is answered from the index alone, as its events cannot be followed", "tenant", c.Tenant,
			"thread_id", c.threadID, "error", err)
	}
	return -1, errUnknown
}

// forgetOpen drops the records of followed runs.
func (c *call) forgetOpen() {
	_ = c.load.take(-c.openBytes) // a release never fails
	c.open, c.openBytes = nil, 0
}

// followOpen is follow for a thread with open runs. If an earlier read has followed the thread, it continues there.
func (c *call) followOpen(v *view, s *stream, indexed int64) (lacks int64, err error) {
	held, err := c.cache.acquire(s.ctx, cacheKey{tenant: c.Tenant, thread: c.threadID}, "")
	if err != nil {
		return -1, err
	}
	defer func() { c.cache.release(held, held.size()) }()
	if had := held.followed; had != nil && s.until >= had.through-c.cfg.Tail.Window { // else the topic was created again
		had.call, had.ctx, had.out, had.until = s.call, s.ctx, s.out, max(s.until, had.through)
		s = had
	}
	for _, r := range v.runs { // they may be newer than the end
		s.until = max(s.until, r.Raw.Next)
	}
	defer func() { // the cache keeps nothing of the request
		s.close()
		s.call, s.ctx, s.out, s.held = nil, nil, sse{}, 0
	}()
	held.followed = nil // until the thread has all records below through
	for again := false; ; again = true {
		if s.thread == nil {
			err = s.load.withSlot(s.ctx, s.openOnce)
		} else if err = s.weigh(); err == nil {
			err = s.follow(s.through)
		}
		if err != nil {
			return -1, err
		}
		switch err = s.toEnd(); {
		case err == nil:
			err = s.load.withSlot(s.ctx, func() (err error) {
				lacks, err = c.overlay(v, s)
				return err
			})
			if c.details && s.patchedAt >= max(indexed, 1) { // no run is before the first record
				lacks = max(lacks, s.patchedAt)
			}
		case !errors.Is(err, errUnread):
			return -1, err
		}
		v.erase(s.erasedAt)
		if stale := errors.Is(err, errBehind); !stale && s.bytes() <= c.cache.bytes.Limit()/cacheParts {
			held.followed = s
		} else if stale && !again {
			s.thread = nil
			continue
		}
		return lacks, err
	}
}

// lastFrom returns the offset of the thread's last event, input or erasure from an offset to the end of the log; -1 if there is none.
func (s *stream) lastFrom(offset int64) (int64, error) {
	last := int64(-1)
	defer s.close()
	err := s.follow(offset)
	for err == nil && !s.caughtUp() {
		var b tail.Batch
		b, err = s.reader.Next(s.ctx)
		for _, m := range s.below(b.Records) {
			h, err := record.ParseHeaders(m.Headers)
			if err != nil || s.changesRows(h.Kind) {
				last = m.Offset
			}
			if err == nil && h.Kind == record.KindErase && !s.cfg.Tail.Kafka.IngestKeys.Refuses(m) {
				s.erasedAt = m.Offset + 1
			}
		}
		s.through = b.Through
	}
	return last, err
}

// changesRows reports whether a record of a kind changes what the call reads. A request to stop a run and a claim change nothing.
func (c *call) changesRows(kind record.Kind) bool {
	return kind != record.KindCancel && kind != record.KindClaim && (kind != record.KindThread || c.details)
}

// erase drops the rows of runs that began before an erasure that the index may lack.
func (v *view) erase(below int64) {
	v.erasedBelow = below
	v.runs = slices.DeleteFunc(slices.Clone(v.runs), func(r store.Run) bool { return r.Raw.First < below })
}

// below returns the records before the end at which a read ends.
func (s *stream) below(records []*kgo.Record) []*kgo.Record {
	i, _ := slices.BinarySearchFunc(records, s.until, func(m *kgo.Record, end int64) int { return cmp.Compare(m.Offset, end) })
	return records[:i]
}

// errUnread means that the thread has all records below through, and the next ones could not be read.
var errUnread = errors.New("reading events")

// toEnd takes the thread's records up to the end of the log.
func (s *stream) toEnd() error {
	for !s.caughtUp() {
		b, err := s.reader.Next(s.ctx)
		if err != nil { // it may have read records of other threads
			s.through = max(s.through, s.reader.Through())
		}
		if errors.Is(err, tail.ErrGone) {
			if err = s.skip(); err == nil {
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errUnread, err)
		}
		b.Records, b.Through = s.below(b.Records), min(b.Through, s.until)
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
// that changes another row. The error is errBehind if the thread has to be opened again: the index ended a run that it has as open, has
// a record of a run that began after it was opened, or knows of a loss that the thread does not.
func (c *call) overlay(v *view, s *stream) (lacks int64, err error) {
	lacks, c.open = -1, map[string]*record.Run{}
	rows := byID(v.runs)
	for _, r := range s.thread.Runs() {
		row, ok := rows[r.ID]
		delete(rows, r.ID)
		switch running := row.Status == record.StatusRunning; {
		case c.one && r.ID != c.runID:
		case r.LateError != nil && row.LateError == nil:
			lacks = max(lacks, r.LateError.Offset)
		case !ok || row.Raw.Next < r.Next && !(running && r.Open()):
			lacks = max(lacks, r.Next-1)
		case r.Open() != running:
			return lacks, errBehind
		case running:
			rec, err := s.thread.Current(r)
			if err != nil {
				return lacks, err
			}
			if rec == nil || row.RawLost && !rec.RawLost || row.Truncated && !rec.Truncated {
				return lacks, errBehind
			}
			bytes := (answerBytes(rec.Messages, rec.State) + answerBytes(nil, rec.Events...)) / answerCopies
			if err := c.load.take(bytes); err != nil {
				return lacks, err
			}
			c.open[r.ID], c.openBytes = rec, c.openBytes+bytes
		}
	}
	for _, row := range rows { // those that the thread does not have
		if row.Raw.First >= s.erasedAt {
			return lacks, errBehind
		}
		lacks = max(lacks, s.erasedAt-1)
	}
	v.runs = slices.Clone(v.runs)
	for i := range v.runs {
		c.isOpen(&v.runs[i])
	}
	return lacks, nil
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
