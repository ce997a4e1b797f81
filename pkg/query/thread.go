package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// view is a snapshot of a thread's rows, or of the row of one run.
type view struct {
	// indexed are the rows as the index has them, by first offset; not empty. In runs, the rows of open runs go as far as the log (follow).
	indexed, runs []store.Run
	// indexedTo is the last event of the thread's partition that is indexed for the tenant.
	indexedTo record.Position
	// status is 200, or 425 if the index did not reach atLeast in time.
	status int
	// erasedBelow is the offset below which the log says that the thread is erased; 0 if it does not.
	erasedBelow int64
}

// maxLook is the longest pause between two reads of the store while a call waits for a change in it.
const maxLook = 400 * time.Millisecond

// read reads rows of the thread, and follows its open runs to the end of the log. With ?atLeast= it repeats the read until the rows include
// the event at that position, for cfg.Wait at most. Without ?fresh=no it also repeats the read until the rows include all events that the
// thread had when the request arrived, for freshWait at most; an answer that may lack some says so (readTo).
func (c *call) read(rows func(ctx context.Context, tenant, thread string) ([]store.Run, error)) (view, error) {
	want, err := c.position("atLeast")
	if err != nil {
		return view{}, err
	}
	fresh, err := oneOf(c, "fresh", "yes", "no")
	if err != nil {
		return view{}, err
	}
	began := time.Now()
	deadline, freshUntil := began.Add(c.cfg.Wait), began.Add(min(freshWait, c.cfg.Wait))
	end, unknown := record.Position{Offset: -1}, false
	if fresh != "no" {
		end, err = c.logEnd()
		if unknown = errors.Is(err, errUnknown); err != nil && !unknown {
			return view{}, err
		}
	}
	ctx, release := c.load.metered(c.R.Context())
	// The position is read first, so that the rows are at least as new.
	to, err := c.store.IndexedTo(c.R.Context(), everyTenant)
	if err != nil {
		return view{}, err
	}
	for look := c.cfg.Poll; ; look = min(2*look, maxLook) {
		runs, err := rows(ctx, c.Tenant, c.threadID)
		if errors.Is(err, store.ErrNotFound) {
			runs, err = nil, nil
		}
		if err != nil {
			return view{}, err
		}
		v, lacks, followed := newView(runs, to), int64(-1), int64(-1)
		if end.Offset >= 0 {
			if lacks, err = c.follow(&v, to[end.Partition], end, freshUntil); err == nil {
				followed = end.Offset
			}
			unknown = errors.Is(err, errUnknown)
		}
		behind := errors.Is(err, errBehind)
		if err != nil && !behind && !unknown {
			return view{}, err
		}
		if want != nil && len(runs) > 0 && runs[0].Raw.Partition != want.Partition {
			return view{}, badRequest("atLeast names partition %d, but this thread lies on partition %d", want.Partition, runs[0].Raw.Partition)
		}
		late := want != nil && !reached(v.runs, c.runID, to, followed, *want)
		next, until := record.Position{Partition: end.Partition, Offset: lacks}, freshUntil
		if late {
			next, until = *want, deadline
		}
		if over := time.Now().After(until); over || !late && lacks < 0 && !behind {
			outcome := readFresh
			switch {
			case unknown:
				outcome = readUnknown
			case lacks >= 0 || behind:
				outcome = readBehind
			}
			if fresh != "no" {
				c.metrics.fresh.WithLabelValues(outcome).Observe(time.Since(began).Seconds())
			}
			if want != nil && want.Partition == end.Partition && want.Offset < end.Offset && !contains(v.runs, *want) {
				if err := c.checkMirrored(*want); err != nil {
					return view{}, err
				}
			}
			return c.readTo(v, want, late, outcome, to)
		}
		release()
		if to[next.Partition] > next.Offset { // the rows lag, or an open run's record is older than want; nothing signals a newer one, so poll
			err = c.sleep(c.R.Context(), min(look, time.Until(until)))
		} else {
			to, err = c.await(to, next, time.Until(until))
		}
		if err != nil {
			return view{}, err
		}
	}
}

// remarkBehind is the remark of an answer that may lack events which the log had when the request arrived.
const remarkBehind = "behind"

// readTo returns the view with which a read ends. The argument late means that it did not reach want in time. An answer from rows that may
// lack events says how far they go.
func (c *call) readTo(v view, want *record.Position, late bool, outcome string, to map[int32]int64) (view, error) {
	found := names(v.runs, c.runID)
	if want != nil {
		outcome := waitReached
		if late {
			outcome, v.status = waitLate, http.StatusTooEarly
		}
		c.metrics.waits.WithLabelValues(outcome).Inc()
	}
	switch {
	case !found && late:
		return view{}, c.absent(to, *want)
	case !found && outcome != readFresh:
		return view{}, later("the index has no such thread or run, and may lack events that were acknowledged; try again")
	case len(v.runs) == 0:
		c.cache.forget(c.Tenant, c.threadID)
		return view{}, store.ErrNotFound
	case outcome != readFresh:
		c.W.Header().Set(headerRemarks, remarkBehind)
		c.W.Header().Set(headerIndexedTo, v.indexedTo.String())
	}
	return v, nil
}

// errWaited ends a wait for the index.
var errWaited = errors.New("the wait is over")

// await waits for at most atMost, without a slot, until the tenant is indexed beyond a position. It returns the last
// progress that it read, or the given one if it read none.
func (c *call) await(to map[int32]int64, want record.Position, atMost time.Duration) (map[int32]int64, error) {
	ctx, cancel := context.WithTimeoutCause(c.R.Context(), atMost, errWaited)
	defer cancel()
	err := c.load.pause(c.R.Context(), func() error {
		for {
			next, err := c.watch.next(ctx)
			if errors.Is(err, errWaited) {
				return nil
			} else if err != nil {
				return err
			}
			if to = next; to[want.Partition] > want.Offset {
				return nil
			}
		}
	})
	return to, err
}

func newView(runs []store.Run, to map[int32]int64) view {
	v := view{indexed: runs, runs: runs, status: http.StatusOK}
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

// reached reports whether rows certainly include the event at a position. They do if a run's record includes it.
// Otherwise the partition must be indexed beyond it, and the requested run must be among the rows and not be an open
// run whose record ends before it (without an id: there are rows, none of them such a run), unless open runs were followed beyond the
// event. The index's progress proves nothing about an open run, because its record is written only from time to time. For a sealed run it
// is sufficient: an event below the progress was a repeat, a dead letter, or another run's.
func reached(runs []store.Run, runID string, to map[int32]int64, followed int64, want record.Position) bool {
	if contains(runs, want) {
		return true
	}
	open := false
	for _, r := range runs {
		if runID == "" || r.RunID == runID {
			open = open || r.Status == record.StatusRunning && max(r.Raw.Next, followed) <= want.Offset
		}
	}
	return names(runs, runID) && !open && to[want.Partition] > want.Offset
}

// contains reports whether a run's record includes the event at a position of the runs' partition.
func contains(runs []store.Run, at record.Position) bool {
	return slices.ContainsFunc(runs, func(r store.Run) bool {
		return slices.ContainsFunc(r.Places(), func(part [2]int64) bool { return part[0] <= at.Offset && at.Offset < part[1] })
	})
}

// names reports whether the requested run is among the rows; without an id, whether there is any row.
func names(runs []store.Run, runID string) bool {
	return slices.ContainsFunc(runs, func(r store.Run) bool { return runID == "" || r.RunID == runID })
}

// absent returns the error for a thread or run that did not appear: too early if the index has not reached the
// position, otherwise not found.
func (c *call) absent(to map[int32]int64, want record.Position) error {
	if to[want.Partition] > want.Offset {
		return store.ErrNotFound
	}
	if err := c.checkErased(c.Call, want.Offset); err != nil {
		return err
	}
	return &front.Problem{Status: http.StatusTooEarly, Retry: time.Second, Detail: fmt.Sprintf("the index has not got to %s yet, and there is no such thread or run so far", want)}
}

// sleep waits without a slot.
func (c *call) sleep(ctx context.Context, d time.Duration) error {
	return c.load.pause(ctx, func() error { return sleep(ctx, d) })
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// readInTime reads all runs of the thread. It refuses a call if the index did not reach atLeast in time.
func (c *call) readInTime() (view, error) {
	v, err := c.read(c.store.Thread)
	if err == nil && v.status == http.StatusTooEarly {
		err = &front.Problem{Status: v.status, Retry: time.Second, Detail: "the index has not got to atLeast yet; try again"}
	}
	return v, err
}

// restored is the history of one run.
type restored struct {
	lineage.History
	// run is the row that was restored. It is newer than the requested row if the run is open and got a new record
	// meanwhile.
	run store.Run
	// inputMessages are the messages of the run's input that its record holds.
	inputMessages []agui.Message
	// own maps each run whose contents are in the history to the messages in its record.
	own map[string][]agui.Message
	// badges are those of the run; Truncated and RawLost cover every run whose contents are in the history.
	badges badges
}

// errBehind means that rows do not fit together yet, because the missing ones are still being written.
var errBehind = errors.New("the index is behind")

// restoreOrTip reads the thread and restores the run in the path. Without a run in the path, it restores the thread's
// tip.
func (c *call) restoreOrTip() (view, *lineage.Graph, restored, error) {
	v, err := c.read(c.store.Thread)
	if err != nil {
		return view{}, nil, restored{}, err
	}
	graph := graphOf(v.runs)
	h, err := c.restore(c.R.Context(), v.runs, cmp.Or(c.runID, graph.Tip()))
	return v, graph, h, err
}

// restore builds the history of a run from the contents of its base chain. It reads the store once for all runs of the
// chain, and skein.runs for the record of an open run. If a row is newer than its contents or older than its record,
// restore retries for cfg.Wait, without a slot between two attempts.
func (c *call) restore(ctx context.Context, runs []store.Run, id string) (restored, error) {
	deadline := time.Now().Add(c.cfg.Wait)
	ctx, release := c.load.metered(ctx)
	for look := c.cfg.Poll; ; look = min(2*look, maxLook) {
		r, err := c.restoreOnce(ctx, runs, id)
		if !errors.Is(err, errBehind) {
			return r, err
		}
		if time.Now().After(deadline) {
			return restored{}, later(fmt.Sprintf("run %q is indexed in part; try again", id))
		}
		release()
		if err := c.sleep(ctx, look); err != nil {
			return restored{}, err
		}
		if runs, err = c.store.Thread(ctx, c.Tenant, c.threadID); err != nil {
			return restored{}, err
		}
	}
}

func (c *call) restoreOnce(ctx context.Context, runs []store.Run, id string) (restored, error) {
	rows := byID(runs)
	for id := range c.open {
		if row := rows[id]; c.isOpen(&row) {
			rows[id] = row
		}
	}
	run, ok := rows[id]
	if !ok {
		return restored{}, store.ErrNotFound
	}
	chain, err := lineage.BaseChain(id, func(id string) (string, bool) {
		r, ok := rows[id]
		return r.Base, ok
	})
	switch {
	case errors.Is(err, lineage.ErrMissingRun):
		return restored{}, fmt.Errorf("%w: %w", errBehind, err)
	case err != nil:
		return restored{}, fmt.Errorf("%w: %w", errBroken, err)
	}
	c.metrics.restored.Observe(float64(len(chain)))
	of := make([]store.Run, len(chain))
	for i, id := range chain {
		of[i] = rows[id]
	}
	contents, err := c.store.Contents(ctx, c.Tenant, c.threadID, of)
	if err != nil {
		return restored{}, err
	}
	out := restored{run: run, badges: badgesOf(run), own: make(map[string][]agui.Message, len(chain))}
	parts := make([]lineage.Content, len(chain))
	for i, id := range chain {
		row := rows[id]
		out.badges.Truncated = out.badges.Truncated || row.Truncated
		out.badges.RawLost = out.badges.RawLost || row.RawLost
		held, ok := contents[id]
		if row.Status == record.StatusRunning {
			if held, err = c.openContents(ctx, row); err != nil {
				return restored{}, err
			}
		} else if !ok {
			return restored{}, fmt.Errorf("%w: contents of run %q are missing, or of another record", errBehind, id)
		}
		out.inputMessages = held.InputMessages // the last iteration sets those of the run itself
		out.own[id] = held.Messages
		parts[i] = lineage.Content{
			RunID: id, Base: row.Base, Messages: held.Messages, Layout: row.Layout, State: held.State,
		}
	}
	if out.History, err = lineage.Restore(parts...); err != nil {
		return restored{}, fmt.Errorf("%w: %w", errBroken, err)
	}
	return out, nil
}

// openContents returns the contents of an open run, of which the store has only the row: as read has followed them or, while the events
// after the run's record cannot be followed, those of that record.
func (c *call) openContents(ctx context.Context, row store.Run) (store.Content, error) {
	r, err := c.open[row.RunID], error(nil)
	if r == nil {
		r, err = c.recordOf(ctx, row)
	}
	if errors.Is(err, kafka.ErrNoRecord) {
		return store.Content{}, fmt.Errorf("%w: the record of open run %q: %w", errBehind, row.RunID, err)
	}
	if err != nil {
		return store.Content{}, err
	}
	return store.Content{Messages: r.Messages, InputMessages: r.InputMessages, State: r.State}, nil
}

// recordWait bounds the read of a record, one request for offsets or settings, and one query of the
// index's progress. Without a bound, a client would retry unavailable brokers for as long as the caller stays.
const recordWait = 5 * time.Second

// recordOf reads the record from which a row was made. kafka.ErrNoRecord means that compaction has removed it, since
// the run has a newer one. It waits for the brokers without a slot.
func (c *call) recordOf(ctx context.Context, row store.Run) (*record.Run, error) {
	var m *kgo.Record
	err := c.load.pause(ctx, func() (err error) {
		wait, cancel := context.WithTimeout(ctx, c.room.patience)
		defer cancel()
		if err = c.room.records.Wait(wait, c.Tenant, 1); err != nil {
			return cmp.Or(ctx.Err(), refuseSlot())
		}
		defer c.room.records.Give(c.Tenant, 1)
		read, cancel := context.WithTimeout(ctx, recordWait)
		defer cancel()
		if m, err = c.records.Read(read, row.Raw.Partition, row.Version); err != nil {
			return err
		}
		return c.load.acquire(ctx) // before Give, so that few records wait for a slot
	})
	if err == nil {
		err = kafka.CheckVersion(m)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the record of run %q at %d:%d: %w", row.RunID, row.Raw.Partition, row.Version, err)
	}
	r, err := record.DecodeRun(m.Value)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	// The record was found by its offset alone. If the topic was created again, it may be another run's, even another
	// tenant's, and must not be returned.
	if r.Tenant != c.Tenant || r.ThreadID != row.ThreadID || r.RunID != row.RunID || r.Status != row.Status {
		return nil, fmt.Errorf("%w: the record at %d:%d is not that of run %q", errBroken, row.Raw.Partition, row.Version, row.RunID)
	}
	return r, nil
}

// byID returns the rows of a thread by run id.
func byID(runs []store.Run) map[string]store.Run {
	rows := make(map[string]store.Run, len(runs))
	for _, r := range runs {
		rows[r.RunID] = r
	}
	return rows
}

// graphOf returns the graph of a thread's rows.
func graphOf(runs []store.Run) *lineage.Graph { return lineage.NewGraph(headsOf(runs)) }

func headsOf(runs []store.Run) []lineage.Run {
	heads := make([]lineage.Run, len(runs))
	for i, r := range runs {
		heads[i] = headOf(r)
	}
	return heads
}

// headOf returns the lineage metadata of a row.
func headOf(r store.Run) lineage.Run {
	head := fold.LineageOf(&r.Run)
	head.Sealed = r.Status.Sealed()
	for _, kind := range r.Rewrote {
		head.Rewrote = append(head.Rewrote, lineage.Rewrite(kind))
	}
	return head
}
