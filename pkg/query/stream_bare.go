package query

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

// bare resumes a run while the lineage store is unavailable. It finds the run's events by the run ids in the log's
// headers. A reader that joins needs the store, so bare returns away, the store's error.
func (s *stream) bare(away error) error {
	at := s.from.at
	if s.runID == "" || at.Offset < 0 || s.from.ended {
		return away
	}
	var err error
	if s.partition, err = s.tail.Partition(s.ctx, s.key); err != nil {
		return err
	}
	if at.Partition != s.partition {
		return s.foreign()
	}
	// Without the store, only the log shows whether the thread was erased since. So bare reads the log to its end before
	// it sends anything.
	had, next, err := s.bareScan()
	switch {
	case err != nil:
		return err
	case had == nil: // only the store knows the run of this event
		return away
	case is(had, agui.RunFinished) && next != nil && is(next, agui.RunError) && !next.Headers.Synthetic: // a late error
		s.out.begin(s.from)
		s.give(next.Value, cursor{at: next.Position(), seq: -1})
		return s.flush()
	case terminal(had):
		s.nothing()
		return nil
	}
	if err := s.follow(at.Offset); err != nil {
		return err
	}
	s.out.begin(s.from)
	s.out.comment("the lineage store does not answer; this run continues without it")
	for seq := had.Headers.Seq; ; {
		if err := s.flush(); err != nil {
			return err
		}
		over, err := s.bareBatch(func(e record.Event) bool {
			if !ofRun(e, had.Headers.RunID) || e.Offset <= at.Offset || e.Headers.Seq >= 0 && e.Headers.Seq <= seq {
				return false
			}
			seq = max(seq, e.Headers.Seq)
			s.give(identified(e.Value, s.threadID, e.Headers.RunID), cursor{at: e.Position(), seq: -1})
			return terminal(&e)
		})
		if over || err != nil {
			return errors.Join(err, s.flush())
		}
	}
}

// bareScan reads from the reader's last event to the end of the log. It returns that event, or nil if its headers do
// not name the run, and the run's next event.
func (s *stream) bareScan() (had, next *record.Event, _ error) {
	if err := s.follow(s.from.at.Offset); err != nil {
		return nil, nil, err
	}
	for !s.caughtUp() {
		_, err := s.bareBatch(func(e record.Event) bool {
			switch {
			case e.Offset == s.from.at.Offset && (ofRun(e, s.runID) || ofRun(e, clientRunID(s.runID))):
				had = &e
			case had != nil && next == nil && ofRun(e, had.Headers.RunID):
				next = &e
			}
			return false
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return had, next, nil
}

// bareBatch calls f with the next events of the thread until f returns true.
func (s *stream) bareBatch(f func(record.Event) (done bool)) (done bool, _ error) {
	b, err := s.next()
	if err != nil {
		return false, err
	}
	for _, m := range b.Records {
		e, ok, err := s.bareEvent(m)
		if err != nil {
			return false, err
		}
		if ok && f(e) {
			return true, nil
		}
	}
	s.through = b.Through
	return false, nil
}

func (s *stream) bareEvent(m *kgo.Record) (record.Event, bool, error) {
	e, ok, err := s.readable(m)
	if ok && e.Headers.Kind == record.KindErase {
		if !s.out.begun {
			return e, false, s.refuseErased(s.Call)
		}
		return e, false, errErased
	}
	return e, ok && e.Signature != record.SignatureWrong, err
}

// clientRunID returns the agent's own run id, which the headers have. If the agent used an id before, Skein names the
// run "id~2".
func clientRunID(run string) string {
	id, number, _ := strings.Cut(run, "~")
	if _, err := strconv.Atoi(number); err != nil {
		return run
	}
	return id
}

// ofRun reports whether an event's headers have this run id and its value is not malformed.
func ofRun(e record.Event, id string) bool {
	if e.Headers.Kind != record.KindEvent || e.Headers.RunID != id {
		return false
	}
	_, err := agui.Decode(e.Value)
	return err == nil
}

// terminal reports whether an event ends its run.
func terminal(e *record.Event) bool { return is(e, agui.RunFinished, agui.RunError) }

// is reports whether an event has one of the types.
func is(e *record.Event, types ...agui.Type) bool {
	ev, err := agui.Decode(e.Value)
	return err == nil && slices.Contains(types, ev.Type)
}
