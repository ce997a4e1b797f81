package query

import (
	"errors"
	"time"

	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/live"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// silentBeats is how many heartbeat periods the playing run may be silent before the stream checks whether it was abandoned.
const silentBeats = 4

// lightThread is the largest memory of a thread's open folds, in bytes, for which join makes snapshots without a slot.
const lightThread = 256 << 10

// play ends the playing run if it is over, and joins the next one.
func (s *stream) play() (done bool, _ error) {
	for s.thread != nil {
		if s.playing == nil {
			if r := s.thread.Get(s.played); r != nil {
				s.endLate(r)
			}
			next := s.pick()
			if next == nil {
				break
			}
			if err := s.join(next); err != nil {
				return false, err
			}
		}
		if !s.over(s.playing) {
			if s.caughtUp() { // the reader's id has proved valid
				s.out.begin(s.from)
			}
			return false, nil
		}
		s.end(s.playing)
		s.played, s.begun, s.playing = s.playing.ID, s.playing.Start, nil
		if s.runID != "" || s.once {
			if !s.out.begun {
				s.nothing()
			}
			return true, s.flush()
		}
		if from := s.thread.From(); s.through < from { // the events in between belong to runs that are over
			if err := s.patiently(func() error { return s.follow(from) }); err != nil {
				return false, err
			}
		}
	}
	if !s.caughtUp() {
		return false, nil
	}
	if s.once {
		return true, s.empty()
	}
	s.out.begin(s.from)
	if s.thread != nil && !s.thread.Open() { // the next record makes the stream read the thread again
		s.thread, s.rows = nil, nil
		return false, s.weigh()
	}
	return false, nil
}

// caughtUp reports whether the stream has read everything that was in the log when the reader began.
func (s *stream) caughtUp() bool { return s.through >= s.reader.End() }

// pick returns the run to play next; nil if there is none yet.
func (s *stream) pick() *live.Run {
	if s.resumes() || !s.caughtUp() {
		return nil
	}
	if s.runID != "" {
		if r := s.thread.Get(s.runID); r != nil && r.Begun() {
			return r
		}
		return nil
	}
	var latest *live.Run
	for _, r := range s.thread.Runs() {
		switch {
		case !r.Begun() || r.Start <= s.begun:
		case s.begun >= 0:
			return r
		case latest == nil || !r.Spawned || latest.Spawned:
			latest = r
		}
	}
	return latest
}

// over reports whether the run has ended and all of its events were read.
func (s *stream) over(r *live.Run) bool { return !r.Open() && s.through >= r.Next }

// join sends the current state of a run to a client that has none of its events.
func (s *stream) join(r *live.Run) error {
	s.playing, s.heard, s.after, s.seq = r, time.Now(), -1, -1
	f := r.Fold()
	if f == nil {
		history := func() error { return s.history(r.ID) }
		return s.patiently(func() error { return s.load.withSlot(s.ctx, history) }, store.ErrNotFound)
	}
	if s.thread.Bytes() > lightThread {
		if err := s.load.acquire(s.ctx); err != nil {
			return err
		}
		defer s.load.releaseSlot()
	}
	at := cursor{at: record.Position{Partition: s.partition, Offset: r.Next - 1}, seq: -1}
	switch {
	case f.Ended():
		end := f.Summary().Terminal
		if r.LateError != nil {
			end, at.at.Offset = r.LateError.Event, r.LateError.Offset
		}
		s.block(wholeRun(s.threadID, r.ClientRunID(), f.Summary().Started, f.Messages(), f.State(), end, s.holdsOther(r.Parent)), at)
	default:
		prelude := f.Prelude
		if s.holdsOther(r.Parent) {
			prelude = f.PreludeAfresh
		}
		events := prelude()
		events[0] = identified(events[0], s.threadID, r.ClientRunID())
		s.block(events, at)
	}
	return nil
}

// holdsOther reports whether the client still has the messages of a run other than this parent, because the stream
// played that run before.
func (s *stream) holdsOther(parent string) bool { return s.played != "" && s.played != parent }

// history sends a run's history from its record.
func (s *stream) history(run string) error {
	h, err := s.restore(s.ctx, s.rows, run)
	if err != nil {
		return err
	}
	at := cursor{at: lastEvent(&h.run.Run), seq: -1}
	at.ended = h.run.Status == record.StatusAbandoned
	s.block(h.events(s.holdsOther(h.run.ParentRunID)), at)
	s.load.releaseSlot() // the client may be slow
	return s.flush()
}

// endLate sends the late error of a run whose end was sent, once.
func (s *stream) endLate(r *live.Run) {
	if late := r.LateError; late != nil && late.Offset > s.last.at.Offset {
		s.give(late.Event, cursor{at: record.Position{Partition: s.partition, Offset: late.Offset}, seq: -1})
	}
}

// end sends the late error of a run, or the terminal event of a run that Skein has ended, which no topic has.
func (s *stream) end(r *live.Run) {
	s.endLate(r)
	at := cursor{at: record.Position{Partition: s.partition, Offset: r.Next - 1}, ended: true, seq: -1}
	if r.Fold() != nil && r.Fold().Ended() || r.Record == nil || r.Record.Status != record.StatusAbandoned || r.Record.Terminal == nil ||
		s.last == at || s.from == at {
		return
	}
	s.give(r.Record.Terminal, at)
}

// checkAbandoned queries the store for a playing run that has had no event for a while, even if other runs of the
// thread continue. If the run was abandoned, it sends the run's end and reports true.
func (s *stream) checkAbandoned() (ended bool, _ error) {
	if s.playing == nil || time.Since(s.heard) < silentBeats*s.cfg.StreamHeartbeat {
		return false, nil
	}
	s.heard = time.Now()
	id := s.playing.ID
	var row store.Run
	err := s.load.withSlot(s.ctx, func() (err error) {
		row, err = s.store.Run(s.ctx, s.Tenant, s.threadID, id)
		return err
	})
	switch {
	case errors.Is(err, store.ErrNotFound) && s.playing.Record != nil:
		return false, s.erased()
	case err != nil: // the next check may succeed
		return false, s.ctx.Err()
	case row.Status != record.StatusAbandoned || row.Raw.Next < s.playing.Next:
		return false, nil
	}
	// The run has had no event since: send its synthetic end.
	s.playing.Record = &row.Run
	s.playing.End, s.playing.Status = s.playing.Next-1, lineage.Status(row.Status)
	s.end(s.playing)
	s.played, s.begun, s.playing = id, s.playing.Start, nil
	if s.runID == "" {
		return true, nil
	}
	return true, &endError{why: endRun}
}
