package query

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// view is what the store said of a thread, or of one run of it, at one moment.
type view struct {
	runs []store.Run // by first offset; not empty
	// indexedTo is the last event of the thread's partition that is indexed for the tenant.
	indexedTo record.Position
	// status is 200, or 425 where the index did not get to atLeast in time.
	status int
}

// read reads rows, and with ?atLeast= again and again until they hold what lies there.
func (c *call) read(rows func() ([]store.Run, error)) (view, error) {
	want, err := c.position("atLeast")
	if err != nil {
		return view{}, err
	}
	deadline := time.Now().Add(c.cfg.Wait)
	for {
		// The position first: rows that are read after it are at least as new.
		to, err := c.store.IndexedTo(c.r.Context(), c.tenant)
		if err != nil {
			return view{}, err
		}
		runs, err := rows()
		if errors.Is(err, store.ErrNotFound) {
			runs, err = nil, nil
		}
		if err != nil {
			return view{}, err
		}
		v := newView(runs, to)
		switch {
		case want == nil && len(runs) == 0:
			return view{}, store.ErrNotFound
		case want == nil:
			return v, nil
		case len(runs) > 0 && runs[0].Raw.Partition != want.Partition:
			return view{}, badRequest(fmt.Sprintf("atLeast names partition %d, but this thread lies on partition %d",
				want.Partition, runs[0].Raw.Partition))
		case reached(runs, c.runID, to, *want):
			c.metrics.waits.WithLabelValues(waitReached).Inc()
			return v, nil
		case time.Now().After(deadline):
			c.metrics.waits.WithLabelValues(waitLate).Inc()
			if !names(runs, c.runID) {
				return view{}, c.absent(to, *want)
			}
			v.status = http.StatusTooEarly
			return v, nil
		}
		if err := c.pause(); err != nil {
			return view{}, err
		}
	}
}

func newView(runs []store.Run, to map[int32]int64) view {
	v := view{runs: runs, status: http.StatusOK}
	if len(runs) == 0 {
		return v
	}
	v.indexedTo.Partition = runs[0].Raw.Partition
	next := to[v.indexedTo.Partition]
	for _, r := range runs { // rows may be newer than the position
		next = max(next, r.Raw.Next)
	}
	v.indexedTo.Offset = max(next-1, 0)
	return v
}

// reached reports whether rows hold the event at a position for certain: a run's record holds it; or
// the partition is indexed beyond it and the run that is asked for (with no id, none of these runs) is
// not open and told only up to before it. That others of the partition are further says nothing of an
// open run, whose record is written from time to time only; of a sealed run it says all, since nothing
// below that position is missing: what lies there was a repeat, a dead letter, or another run's.
func reached(runs []store.Run, runID string, to map[int32]int64, want record.Position) bool {
	open := false
	for _, r := range runs {
		holds := func(part [2]int64) bool { return part[0] <= want.Offset && want.Offset < part[1] }
		if slices.ContainsFunc(r.Raw.Ranges, holds) {
			return true
		}
		if runID == "" || r.RunID == runID {
			open = open || r.Status == record.StatusRunning && r.Raw.Next <= want.Offset
		}
	}
	return names(runs, runID) && !open && to[want.Partition] > want.Offset
}

// names reports whether the run that is asked for is there; with no id, any.
func names(runs []store.Run, runID string) bool {
	return slices.ContainsFunc(runs, func(r store.Run) bool { return runID == "" || r.RunID == runID })
}

// absent refuses a thread or run that did not appear: too early where the index has not got to the
// position, else there is none.
func (c *call) absent(to map[int32]int64, want record.Position) error {
	if to[want.Partition] > want.Offset {
		return store.ErrNotFound
	}
	return &refusal{
		status: http.StatusTooEarly, retryAfter: 1,
		detail: fmt.Sprintf("the index has not got to %s yet, and there is no such thread or run so far", want),
	}
}

// pause waits for one look at the index.
func (c *call) pause() error {
	t := time.NewTimer(c.cfg.Poll)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-c.r.Context().Done():
		return c.r.Context().Err()
	}
}

// readThread reads all runs of the thread.
func (c *call) readThread() (view, error) {
	return c.read(func() ([]store.Run, error) {
		return c.store.Thread(c.r.Context(), c.tenant, c.threadID)
	})
}

// readRun reads the run of the path.
func (c *call) readRun() (view, error) {
	return c.read(func() ([]store.Run, error) {
		r, err := c.store.Run(c.r.Context(), c.tenant, c.threadID, c.runID)
		return []store.Run{r}, err
	})
}
