package query

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/live"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/tail"
)

// streamRetry is the pause between two attempts to read the thread while the store or Kafka is unavailable.
const streamRetry = time.Second

// patiently calls f. For a stream that has begun, it retries until the store and Kafka answer, and sends comments
// meanwhile. It returns errors that a retry would repeat, and those in final.
func (s *stream) patiently(f func() error, final ...error) error {
	for waiting := false; ; {
		err := f()
		is := func(e error) bool { return errors.Is(err, e) }
		if err == nil || !s.out.begun || s.ctx.Err() != nil || is(errBroken) || is(errCaller) || isNoRoom(err) ||
			is(tail.ErrGone) || is(tail.ErrClosed) ||
			wrongID(err) || slices.ContainsFunc(final, is) {
			return err
		}
		if !waiting {
			s.cfg.Logger.WarnContext(s.ctx, "live stream waits until its thread can be read", "tenant", s.Tenant, "thread_id", s.threadID, "error",
				err)
			s.out.comment("the thread cannot be read now; the stream continues once it can")
			waiting = true
		} else {
			s.out.comment("")
		}
		if err := s.flush(); err != nil {
			return err
		}
		if err := sleep(s.ctx, streamRetry); err != nil {
			return err
		}
	}
}

// wrongID reports whether an error refuses the request itself, so that a retry does not help.
func wrongID(err error) bool {
	r := new(front.Problem)
	return errors.As(err, &r) && r.Status < http.StatusInternalServerError && r.Status != http.StatusTooManyRequests
}

// fallBack serves a request whose first read failed, if that is possible without the unavailable system: the rest of a
// run without the lineage store, or a restored thread without Kafka.
func (s *stream) fallBack(err error) error {
	if refused := new(front.Problem); s.out.begun || s.ctx.Err() != nil || errors.As(err, &refused) || errors.Is(err, errBroken) ||
		errors.Is(err, store.ErrNotFound) {
		return err
	}
	if len(s.rows) == 0 { // the store returned nothing
		return s.bare(err)
	}
	if !s.once {
		return err
	}
	run := cmp.Or(s.runID, slices.MaxFunc(s.rows, compareTips).RunID)
	if i := slices.IndexFunc(s.rows, func(r store.Run) bool { return r.RunID == run }); i < 0 || s.rows[i].Status == record.StatusRunning {
		return err
	}
	s.cfg.Logger.WarnContext(s.ctx, "restoring a thread from the lineage store alone", "tenant", s.Tenant, "thread_id", s.threadID, "error",
		err)
	return s.load.withSlot(s.ctx, func() error { return s.history(run) })
}

// open reads the thread's runs from the index and follows the log from the end of the index. While the index lacks
// rows, it retries for cfg.Wait.
func (s *stream) open() error {
	deadline := time.Now().Add(s.cfg.Wait)
	for {
		err := s.load.withSlot(s.ctx, s.openOnce)
		if err == nil || !errors.Is(err, errBehind) {
			return err
		}
		if time.Now().After(deadline) {
			return later("the thread is only partly indexed; try again")
		}
		if err := sleep(s.ctx, s.cfg.Poll); err != nil {
			return err
		}
	}
}

func (s *stream) openOnce() error {
	s.thread, s.erasedAt = nil, 0 // so that the reads below fail at once: recordsOfThread retries if a thread is open
	// The index's position is read before the rows, so that the rows are at least as new. everyTenant excludes the
	// tenant's own rows from the position: one of them may be ahead of a run that is not indexed yet.
	to, err := s.store.IndexedTo(s.ctx, everyTenant)
	if err != nil {
		return err
	}
	rows, err := s.store.Thread(s.ctx, s.Tenant, s.threadID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	s.rows = rows
	if len(rows) > 0 {
		s.partition = rows[0].Raw.Partition
	} else if err := s.load.pause(s.ctx, func() (err error) {
		s.partition, err = s.tail.Partition(s.ctx, s.key)
		return err
	}); err != nil {
		return err
	}
	if at := s.from.at; s.resumes() && at.Offset >= 0 && at.Partition != s.partition {
		return s.foreign()
	}
	lighten(rows)
	thread, err := live.New(s.threadID, recordsOf(rows), to[s.partition], &recordsOfThread{s, rows}, s.until != tail.End)
	if err != nil {
		return err
	}
	from, err := s.start(thread, rows)
	if err != nil {
		return err
	}
	if s.until != tail.End { // the index may be beyond it by now
		s.until = max(s.until, from)
	}
	s.thread = thread
	if err := s.weigh(); err != nil {
		return err
	}
	s.load.releaseSlot() // Kafka may not answer
	if err := s.follow(from); err != nil {
		return err
	}
	return s.checkRun()
}

// checkRun refuses a seq id of a run that was erased: neither the index nor the log has the run any more.
func (s *stream) checkRun() error {
	if s.resumes() && s.from.seq >= 0 && s.caughtUp() && s.thread.Get(s.runID) == nil {
		return s.checkErased(s.Call, -1)
	}
	return nil
}

// lighten drops the parts of rows that streams do not use, because each reader of an open run holds the rows of its
// thread.
func lighten(rows []store.Run) {
	for i := range rows {
		r := &rows[i]
		if r.Input != nil { // only its presence counts
			r.Input = json.RawMessage(`{}`)
		}
		r.Events, r.Labels, r.PendingToolCalls, r.Resumes = nil, nil, nil, nil
		r.Stats = record.Stats{Anomalies: r.Stats.Anomalies}
	}
}

// follow starts reading the log at an offset.
func (s *stream) follow(from int64) error {
	s.close()
	reader, err := s.tail.FollowTo(s.ctx, s.key, s.partition, from, s.until)
	if errors.Is(err, tail.ErrGone) && s.resumes() {
		return s.unknown()
	}
	if err != nil {
		return err
	}
	if s.resumes() && s.from.at.Offset >= reader.End() {
		reader.Close()
		return s.unknown()
	}
	s.reader, s.through = reader, from
	return nil
}

// skip continues at the start of the log after a gap. Earlier events of open runs are gone.
func (s *stream) skip() error { return s.patiently(s.skipOnce) }

func (s *stream) skipOnce() error {
	first, err := s.tail.Start(s.ctx, s.partition)
	if err != nil {
		return err
	}
	if first <= s.through {
		return fmt.Errorf("following %s from %d:%d on: %w", s.key, s.partition, s.through, tail.ErrGone)
	}
	return s.follow(first)
}

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
	last, late := row.Raw.Next-1, row.LateError
	if at := s.from.at; at.Offset >= 0 && at.Offset < row.Raw.First || s.beforeRun(&row.Run) {
		if err := s.checkErased(s.Call, at.Offset); err != nil {
			return false, err
		}
	}
	switch at := s.from.at; {
	case late != nil && at == lastEvent(&row.Run):
		s.nothing()
		return true, nil
	case late != nil && (at.Partition == row.Raw.Partition && at.Offset == last || s.from.seq >= 0 && s.from.seq == row.Raw.NextSeq-1):
		s.give(late.Event, cursor{at: lastEvent(&row.Run), seq: -1})
		return true, s.flush()
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

// beforeRun reports whether a seq id may name an event of an earlier run of this id: the run's events lack numbers, or the id's.
func (s *stream) beforeRun(r *record.Run) bool {
	return s.from.seq >= 0 && (s.from.seq >= r.Raw.NextSeq || r.Stats.Anomalies[fold.AnomalyGap] > 0)
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

// refuseID returns the refusal of the reader's id.
func (s *stream) refuseID(status int, format string, args ...any) error {
	return &front.Problem{Status: status, Detail: headerLastEventID + ": " + fmt.Sprintf(format, args...)}
}

// foreign returns the refusal for an id that is not an event of the requested run or thread.
func (s *stream) foreign() error {
	if s.from.at.Offset >= 0 {
		if err := s.checkMirrored(s.from.at); err != nil {
			return err
		}
	}
	of := "this thread"
	if s.runID != "" {
		of = "this run"
	}
	return s.refuseID(http.StatusBadRequest, "%s is not an event of %s that a stream sent; leave it out to join", s.from, of)
}

// unknown returns the refusal for an id beyond the end of the log.
func (s *stream) unknown() error {
	return s.refuseID(http.StatusBadRequest,
		"skein.events has nothing at %s yet: the id is invalid or belongs to another topic set; leave it out to join", s.from)
}

// unnumbered returns the refusal for a seq id if the run's producer does not number events. If the stream has begun,
// finish ends it with the same text.
func (s *stream) unnumbered() error {
	return s.refuseID(http.StatusBadRequest, "%s, but the events of run %q have no sequence numbers; leave it out to join", s.from, s.runID)
}

// resumes reports whether the reader resumes after an event whose run is not known yet.
func (s *stream) resumes() bool { return !s.from.joins() && s.playing == nil && s.begun < 0 }

// start returns the offset from which raw records are needed.
func (s *stream) start(thread *live.Thread, rows []store.Run) (int64, error) {
	from := thread.From()
	switch at := s.from.at.Offset; {
	case !s.resumes():
	case s.from.seq >= 0:
		if s.runID == "" {
			return 0, s.refuseID(http.StatusBadRequest, "seq numbers the events of one run; use that run's stream")
		}
		if r := thread.Get(s.runID); r != nil && r.Record != nil {
			if s.beforeRun(r.Record) {
				if err := s.checkErased(s.Call, -1); err != nil {
					return 0, err
				}
			}
			missing := r.Record.Raw.NextSeq - s.from.seq - 1
			if missing > 0 || missing == 0 && r.Record.Status != record.StatusRunning { // the reader lacks events, or the end of an abandoned run
				from = min(from, thread.Replay(r, r.Record.Raw.First))
			}
		}
	default:
		if err := s.checkErased(s.Call, at); err != nil {
			return 0, err
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

// recordsOfThread implements live.Source from the index and skein.runs. Once the thread is open, its reads retry until
// the store answers, because the thread cannot take a record twice. Before that, a read fails at once, and the caller
// of stream.open repeats all reads.
type recordsOfThread struct {
	*stream
	rows []store.Run
}

func (s *recordsOfThread) patiently(f func() error) error {
	if s.thread == nil {
		return f()
	}
	s.load.releaseSlot() // acquired by takeInTurn; the read may wait for the store
	return s.stream.patiently(f, errBehind, store.ErrNotFound)
}

// Record implements live.Source.
func (s *recordsOfThread) Record(run string) (rec *record.Run, _ error) {
	i := slices.IndexFunc(s.rows, func(r store.Run) bool { return r.RunID == run })
	if i < 0 {
		return nil, fmt.Errorf("%w: run %q has no row", errBehind, run)
	}
	err := s.patiently(func() error {
		return s.load.withSlot(s.ctx, func() (err error) {
			rec, err = s.recordOf(s.ctx, s.rows[i])
			return err
		})
	})
	if errors.Is(err, kafka.ErrNoRecord) {
		return nil, fmt.Errorf("%w: run %q has a newer record: %w", errBehind, run, err)
	}
	return rec, err
}

// History implements live.Source.
func (s *recordsOfThread) History(run string) (lineage.History, error) {
	var h restored
	err := s.patiently(func() error {
		return s.load.withSlot(s.ctx, func() (err error) {
			h, err = s.restore(s.ctx, s.rows, run)
			return err
		})
	})
	return h.History, err
}

// Holding implements live.Source.
func (s *recordsOfThread) Holding(messageIDs []string) ([]string, error) {
	var versions map[string]int64
	err := s.patiently(func() (err error) {
		versions, err = s.store.Holding(s.ctx, s.Tenant, s.threadID, messageIDs)
		return err
	})
	return slices.Collect(maps.Keys(versions)), err
}
