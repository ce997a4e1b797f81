package query

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/skeinhq/skein/internal/front"
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

// maxLook is the pause between two looks at a run that goes on, at most: its row is read each time.
const maxLook = 400 * time.Millisecond

// read reads rows, and with ?atLeast= again until they hold what lies there.
func (c *call) read(rows func() ([]store.Run, error)) (view, error) {
	want, err := c.position("atLeast")
	if err != nil {
		return view{}, err
	}
	deadline := time.Now().Add(c.cfg.Wait)
	// The position first: rows that are read after it are at least as new.
	to, err := c.store.IndexedTo(c.R.Context(), c.Tenant)
	if err != nil {
		return view{}, err
	}
	for look := c.cfg.Poll; ; look = min(2*look, maxLook) {
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
		c.load.free()
		indexed := func(to map[int32]int64) bool { return to[want.Partition] > want.Offset }
		atMost := time.Until(deadline)
		if indexed(to) { // it is the record of a run that goes on which is behind: nothing tells when there is a newer one
			indexed, atMost = func(map[int32]int64) bool { return false }, min(look, atMost)
		}
		if to, err = c.await(c.Tenant, to, indexed, atMost); err != nil {
			return view{}, err
		}
	}
}

// await waits, without a turn, until the index has got as far for a tenant as enough says, for a time at most.
func (c *call) await(tenant string, to map[int32]int64, enough func(map[int32]int64) bool, atMost time.Duration) (map[int32]int64, error) {
	c.load.rest()
	for over := time.Now().Add(atMost); ; {
		var err error
		if to, err = c.watch.next(c.R.Context(), tenant, to, time.Until(over)); err != nil {
			return nil, err
		}
		if enough(to) || !time.Now().Before(over) {
			return to, c.load.begin(c.R.Context())
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

// reached reports whether rows certainly include the event at a position: a run's record includes it; or
// the partition is indexed beyond it, and the requested run (without an id, none of these runs) is not an
// open run whose record ends before it. The progress of a partition says nothing about an open run, whose
// record is written from time to time only. For a sealed run it is sufficient, as nothing below that
// position is missing: the event there was a repeat, a dead letter, or another run's.
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
	return &front.Problem{Status: http.StatusTooEarly, Retry: time.Second, Detail: fmt.Sprintf("the index has not got to %s yet, and there is no such thread or run so far", want)}
}

// sleep waits for a time.
func (c *call) sleep(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-c.R.Context().Done():
		return c.R.Context().Err()
	}
}

// readThread reads all runs of the thread.
func (c *call) readThread() (view, error) {
	return c.read(func() ([]store.Run, error) {
		return c.store.Thread(c.R.Context(), c.Tenant, c.threadID)
	})
}

// readLineage reads where the runs of the thread stand, and not their records.
func (c *call) readLineage() (view, error) {
	return c.read(func() ([]store.Run, error) {
		return c.store.Lineage(c.R.Context(), c.Tenant, c.threadID)
	})
}

// readRun reads the run of the path.
func (c *call) readRun() (view, error) {
	return c.read(func() ([]store.Run, error) {
		r, err := c.store.Run(c.R.Context(), c.Tenant, c.threadID, c.runID)
		return []store.Run{r}, err
	})
}
