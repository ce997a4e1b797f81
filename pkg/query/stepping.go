package query

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/timeline"
	"github.com/skeinhq/skein/pkg/verify"
)

// stepping is one request to step through a run.
type stepping struct {
	*timeline.Reader
	c    *call
	row  store.Run
	held *cached
}

// stepThrough calls f with a run's timeline. If the cached one does not satisfy enough, it first reads on to the end of the log.
func (c *call) stepThrough(v view, run string, enough func(*timeline.Reader) bool, f func(stepping) error) error {
	i := slices.IndexFunc(v.runs, func(r store.Run) bool { return r.RunID == run })
	if i < 0 {
		return store.ErrNotFound
	}
	row := v.runs[i]
	origin := fmt.Sprint(row.Raw.Partition, row.Raw.First, row.ParentRunID, "/", row.Base)
	c.load.releaseSlot() // another request may be reading the run
	held, err := c.cache.acquire(c.R.Context(), cacheKey{c.Tenant, c.threadID, run}, origin)
	if err != nil {
		return err
	}
	defer func() { c.cache.release(held, held.size()) }() // without a reader, as after an error, the run is not cached
	if err := c.load.acquire(c.R.Context()); err != nil {
		return err
	}
	suffices := false
	if r := held.reader; r != nil {
		r.Update(recordsOf(v.runs))
		suffices = r.Done() || enough(r)
	}
	if !suffices {
		c.metrics.timelineReads.WithLabelValues(readFromLog).Inc()
		if held.reader, err = c.readTimeline(v, row, held.reader); err != nil {
			return err
		}
		if at := held.cursor; at != nil && !held.reader.Reaches(at, at.N()) { // its mark was dropped
			held.cursor = nil
		}
	} else {
		c.metrics.timelineReads.WithLabelValues(readFromCache).Inc()
	}
	if !held.reader.Begun() {
		return &front.Problem{
			Status: http.StatusNotFound, Members: map[string]any{"total": 0},
			Detail: fmt.Sprintf("run %q has no state yet: none of its events has arrived that could be folded", run),
		}
	}
	return f(stepping{held.reader, c, row, held})
}

// readTimeline reads the raw events of a run that the reader r does not have yet, or all of them if r is nil.
func (c *call) readTimeline(v view, row store.Run, r *timeline.Reader) (*timeline.Reader, error) {
	counted := verify.Bytes(&row.Run)            // for the fold; the timeline is counted separately
	defer func() { _ = c.load.take(-counted) }() // a release never fails
	if err := c.load.take(counted); err != nil {
		counted = 0
		return nil, err
	}
	raw, err := c.openRaw(row.Raw.Partition)
	if err != nil {
		return nil, err
	}
	defer raw.close()
	if n := len(row.Raw.Ranges); n > 0 && row.Raw.Ranges[n-1][1] > raw.end { // the topic was created again
		return nil, c.goneFrom(raw, row, "the raw events are gone; the history is kept: ask for the history")
	}
	if r == nil {
		history := func(run string) (lineage.History, error) {
			h, err := c.restore(c.R.Context(), v.runs, run)
			return h.History, err
		}
		r, err = timeline.NewReader(recordsOf(v.runs), row.RunID, raw.start, c.cache.bytes.Limit()/cacheParts, history)
		if err != nil {
			return nil, c.unsteppable(raw, row, err)
		}
	}
	held := r.Bytes()
	err = c.eachOfThread(raw, r.Ranges(raw.end), func(e record.Event) error {
		if err := r.Take(e); err != nil {
			return err
		}
		more := r.Bytes() - held
		if err := c.load.take(more); err != nil {
			return err
		}
		held, counted = held+more, counted+more
		return nil
	})
	if err != nil {
		return nil, c.unsteppable(raw, row, err)
	}
	r.Taken(raw.end)
	return r, nil
}

// eachOfThread calls f with the thread's events and inputs in the ranges.
func (c *call) eachOfThread(raw *rawRead, ranges [][2]int64, f func(record.Event) error) error {
	key, err := record.ThreadKey(c.Tenant, c.threadID)
	if err != nil {
		return err
	}
	var like record.Headers // those of the last record, which the next one probably repeats
	return raw.each(c.R.Context(), ranges, func(m *kgo.Record) error {
		if string(m.Key) != key {
			return nil
		}
		e, ok, err := kafka.RunEvent(m, &like, c.cfg.Tail.Kafka.IngestKeys)
		if !ok {
			return err
		}
		like = e.Headers
		return f(e)
	})
}

// unsteppable returns the refusal for a run that cannot be stepped through.
func (c *call) unsteppable(raw *rawRead, row store.Run, err error) error {
	why := new(fold.StartError)
	switch {
	case errors.As(err, &why) && why.Gone:
		return c.goneFrom(raw, row, why.Reason)
	case errors.As(err, &why):
		return &front.Problem{Status: http.StatusConflict, Detail: fmt.Sprintf("run %q cannot be stepped through: %s", row.RunID, why.Reason)}
	case errors.Is(err, timeline.ErrTooLong):
		return &front.Problem{Status: http.StatusConflict, Detail: fmt.Sprintf("run %q has too many events to step through it; replay gives them back", row.RunID)}
	case errors.Is(err, errRawGone): // they expired after the start of the log was requested
		return c.goneFrom(raw, row, "raw events expired while they were read; the history is kept: ask for the history")
	}
	return err
}

// goneFrom returns the refusal for a run whose raw events are partly gone.
func (c *call) goneFrom(raw *rawRead, row store.Run, detail string) error {
	r := &front.Problem{Status: http.StatusGone, Detail: detail}
	if at := raw.earliest(row.Raw.Ranges); at >= 0 {
		r.Members = map[string]any{"earliest": record.Position{Partition: raw.partition, Offset: at}}
	}
	return r
}

// at returns a cursor after step n, which continues from the last request's cursor if that one is near enough. The
// argument to is the last step that the cursor can reach.
func (s stepping) at(n, to int) (*timeline.Cursor, error) {
	last := s.held.cursor
	values, _, err := s.reach(last, n, to)
	if err != nil {
		return nil, err
	}
	s.held.cursor = nil // set again by keep once the cursor has moved without an error
	return s.From(s.c.R.Context(), last, n, values)
}

// reach takes the memory to move the cursor last (nil: none) to step n. It reads the events that the timeline does not
// hold, and returns how many bytes it took. The argument to is the last step whose event may be read.
func (s stepping) reach(last *timeline.Cursor, n, to int) (values func(timeline.Step) []byte, counted int64, err error) {
	counted = s.CursorBytes(last, n)
	if err := s.c.load.take(counted); err != nil {
		return nil, 0, err
	}
	missing := s.Missing(last, n, to)
	if missing[0] >= missing[1] {
		return nil, counted, nil
	}
	read, bytes, err := s.values(missing, math.MaxInt64)
	if err != nil {
		return nil, 0, err
	}
	return func(step timeline.Step) []byte { return read[step.Offset] }, counted + bytes, nil
}

// next moves a cursor to the next step, after taking the memory for that, unless the caller has left.
func (s stepping) next(at *timeline.Cursor) (timeline.Step, timeline.Change, error) {
	if err := s.c.R.Context().Err(); err != nil {
		return timeline.Step{}, timeline.Change{}, err
	}
	if err := s.c.load.take(s.FoldingBytes(at.N(), at.N()+1)); err != nil {
		return timeline.Step{}, timeline.Change{}, err
	}
	step, change, err := at.Next()
	if err != nil {
		return step, change, err
	}
	return step, change, s.c.load.take(int64(change.Bytes()))
}

// errEnough ends a read of values.
var errEnough = errors.New("there are enough events")

// keep caches the cursor for the next request of the run, unless the run would then take more than its part of the
// cache.
func (s stepping) keep(at *timeline.Cursor) {
	at.Park()
	s.held.cursor = at
	if s.held.size() > s.c.cache.bytes.Limit()/cacheParts {
		s.held.cursor = nil
	}
}

// values reads from the log the events in a range of offsets that the timeline does not hold, up to the first event with which they have
// more than the argument most of bytes. It returns how many bytes of memory it took for them.
func (s stepping) values(offsets [2]int64, most int64) (read map[int64][]byte, counted int64, err error) {
	raw, err := s.c.openRaw(s.row.Raw.Partition)
	if err != nil {
		return nil, 0, err
	}
	defer raw.close()
	if offsets[0] < raw.start {
		return nil, 0, s.c.goneFrom(raw, s.row, "the raw events are older than skein.events keeps them; the history is kept: ask for the history")
	}
	read = map[int64][]byte{} // at most a page's steps, or those between two marks
	err = s.c.eachOfThread(raw, [][2]int64{offsets}, func(e record.Event) error {
		read[e.Offset] = bytes.Clone(e.Value)
		counted += int64(len(e.Value))
		if err := s.c.load.take(int64(len(e.Value))); err != nil {
			return err
		}
		if counted > most {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, 0, s.c.unsteppable(raw, s.row, err)
	}
	return read, counted, nil
}
