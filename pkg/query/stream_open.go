package query

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/skeinhq/skein/internal/front"
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
	run := cmp.Or(s.runID, tip(s.rows).RunID)
	if i := slices.IndexFunc(s.rows, func(r store.Run) bool { return r.RunID == run }); i < 0 || s.rows[i].Status == record.StatusRunning {
		return err
	}
	s.cfg.Logger.WarnContext(s.ctx, "restoring a thread from the lineage store alone", "tenant", s.Tenant, "thread_id", s.threadID, "error",
		err)
	return s.load.withSlot(s.ctx, func() error { return s.history(run) })
}

// open reads the thread's runs from the index and follows the log from the end of the index. It waits while the index
// is behind.
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
	s.thread = nil // so that the reads below fail at once: recordsOfThread retries if a thread is open
	// The index's position is read before the rows, so that the rows are at least as new. It is the position for all
	// tenants: the tenant's own counts its rows, one of which may be ahead of a run that is not indexed yet.
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
	} else if s.partition, err = s.tail.Partition(s.ctx, s.key); err != nil {
		return err
	}
	if at := s.from.at; s.resumes() && at.Offset >= 0 && at.Partition != s.partition {
		return s.foreign()
	}
	lighten(rows)
	thread, err := live.New(s.threadID, recordsOf(rows), to[s.partition], &recordsOfThread{s, rows})
	if err != nil {
		return err
	}
	from, err := s.start(thread, rows)
	if err != nil {
		return err
	}
	s.thread = thread
	if err := s.weigh(); err != nil {
		return err
	}
	return s.follow(from)
}

// lighten drops the parts of rows that streams do not use, because each reader of an open run holds the rows of its
// thread.
func lighten(rows []store.Run) {
	for i := range rows {
		r := &rows[i]
		if r.Input != nil { // only its presence counts
			r.Input = json.RawMessage(`{}`)
		}
		r.Events, r.Labels, r.Interrupts, r.PendingToolCalls, r.Resumes = nil, nil, nil, nil, nil
		r.Stats = record.Stats{Anomalies: r.Stats.Anomalies}
	}
}

// follow starts reading the log at an offset.
func (s *stream) follow(from int64) error {
	s.close()
	reader, err := s.tail.Follow(s.ctx, s.key, s.partition, from)
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
