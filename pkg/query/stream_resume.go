package query

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/live"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// recorded answers from the run's record alone, if the run has ended and the reader needs nothing else. done reports
// whether it did.
func (s *stream) recorded() (done bool, _ error) {
	if s.runID == "" {
		return false, nil
	}
	row, err := s.store.Run(s.ctx, s.Tenant, s.threadID, s.runID)
	if errors.Is(err, store.ErrNotFound) || err == nil && row.Status == record.StatusRunning {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	last := row.Raw.Next - 1
	switch at := s.from.at; {
	case s.from.joins():
		if s.rows, err = s.store.Thread(s.ctx, s.Tenant, s.threadID); err != nil {
			return false, err
		}
		s.partition = row.Raw.Partition
		return true, s.history(s.runID)
	case s.from.seq >= 0 && row.Raw.NextSeq < 0:
		return false, s.unnumbered()
	case s.from.seq >= 0 && row.Status == record.StatusAbandoned:
		return false, nil
	case s.from.seq >= 0 && s.from.seq >= row.Raw.NextSeq:
		return false, s.foreign()
	case s.from.seq >= 0 && s.from.seq == row.Raw.NextSeq-1:
		s.nothing()
		return true, nil
	case s.from.seq >= 0:
		return false, nil
	case at.Partition != row.Raw.Partition || at.Offset < row.Raw.First || at.Offset > last:
		return false, s.foreign()
	case at.Offset == last && (row.Status != record.StatusAbandoned || s.from.ended):
		s.nothing()
		return true, nil
	}
	return false, nil
}

// nothing answers 204 to a reader that already has everything. A stream that had to begin while it waited for a slot
// just ends; the reader reconnects and then gets the 204.
func (s *stream) nothing() {
	if s.out.begun {
		return
	}
	s.W.Header().Set("Cache-Control", "no-store")
	s.W.WriteHeader(http.StatusNoContent)
}

// foreign returns the refusal for an id that is not an event of the requested run or thread.
func (s *stream) foreign() error {
	of := "this thread"
	if s.runID != "" {
		of = "this run"
	}
	return badRequest(fmt.Sprintf("%s: %s is not an event of %s that a stream sent; leave it out to join", headerLastEventID, s.from, of))
}

// resumes reports whether the reader resumes after an event whose run is not known yet.
func (s *stream) resumes() bool { return !s.from.joins() && s.playing == nil && s.begun < 0 }

// gone returns the refusal for an id that is older than the log.
func (s *stream) gone() error {
	return &front.Problem{Status: http.StatusGone, Detail: fmt.Sprintf("%s: %s is older than skein.events keeps; leave it out to join", headerLastEventID, s.from)}
}

// unnumbered returns the refusal for a seq id if the run's producer does not number events. If the stream has begun,
// the error ends it.
func (s *stream) unnumbered() error {
	detail := fmt.Sprintf("%s: %s, but the events of run %q have no sequence numbers; leave it out to join", headerLastEventID, s.from, s.runID)
	if s.out.begun {
		return &endError{why: endRefused, detail: detail}
	}
	return badRequest(detail)
}

// unknown returns the refusal for an id beyond the end of the log.
func (s *stream) unknown() error {
	return badRequest(fmt.Sprintf("%s: skein.events has nothing at %s yet: the id is invalid or belongs to another topic set; leave it out to join", headerLastEventID, s.from))
}

// start returns the offset from which raw records are needed.
func (s *stream) start(thread *live.Thread, rows []store.Run) (int64, error) {
	from := thread.From()
	switch at := s.from.at.Offset; {
	case !s.resumes():
	case s.from.seq >= 0:
		if s.runID == "" {
			return 0, badRequest(headerLastEventID + ": seq numbers the events of one run; use that run's stream")
		}
		if r := thread.Get(s.runID); r != nil && r.Record != nil {
			missing := r.Record.Raw.NextSeq - s.from.seq - 1
			if missing > 0 || missing == 0 && r.Record.Status != record.StatusRunning { // the reader lacks events, or the end of an abandoned run
				from = min(from, thread.Replay(r, r.Record.Raw.First))
			}
		}
	default:
		erased, err := s.store.Erasure(s.ctx, s.Tenant, s.threadID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return 0, err
		}
		if err == nil && at < erased.Below {
			return 0, &front.Problem{Status: http.StatusGone, Detail: fmt.Sprintf("%s: the event at %s was erased", headerLastEventID, s.from)}
		}
		from = min(from, at)
		for i := range rows {
			if raw := rows[i].Raw; raw.First <= at && at < raw.Next {
				from = min(from, thread.Replay(thread.Get(rows[i].RunID), at))
			}
		}
	}
	return from, nil
}
