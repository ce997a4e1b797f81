package query

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/store"
)

// threadsAnswer is a page of threads.
type threadsAnswer struct {
	Threads []store.Thread `json:"threads"`
	// Next is the next page's "after"; empty at the end.
	Next      string            `json:"next,omitempty"`
	IndexedTo []record.Position `json:"indexedTo"`
}

// threadAnswer is the summary of a thread.
type threadAnswer struct {
	store.Thread
	// Running are the runs that have not ended, by start.
	Running   []runningRun    `json:"running"`
	IndexedTo record.Position `json:"indexedTo"`
}

// runningRun is a run that has not ended. A client can attach to it.
type runningRun struct {
	RunID string `json:"runId"`
	// ClientRunID is the id that the agent gave, if it differs: requests to stop the run name it.
	ClientRunID string    `json:"clientRunId,omitempty"`
	BranchID    string    `json:"branchId"`
	Agent       string    `json:"agent,omitempty"`
	StartedAt   time.Time `json:"startedAt"`
}

func (c *call) threads() (*answer, error) {
	q := store.ThreadQuery{
		Prefix: c.Query.Get("prefix"),
		Agent:  c.Query.Get("agent"),
		After:  c.Query.Get("after"),
	}
	var err error
	if q.Limit, err = c.limit(); err != nil {
		return nil, err
	}
	if q.Status, err = oneOf(c, "status", search.Statuses...); err != nil {
		return nil, err
	}
	if q.Since, err = c.time("since"); err != nil {
		return nil, err
	}
	if q.Archived, err = oneOf(c, search.ParamArchived, search.ArchivedNo, search.ArchivedYes, search.ArchivedAll); err != nil {
		return nil, err
	}
	if q.Words, err = search.ParseWords(c.Query, "title"); err != nil {
		return nil, err
	}
	to, err := c.store.IndexedTo(c.R.Context(), c.Tenant)
	if err != nil {
		return nil, err
	}
	a := threadsAnswer{IndexedTo: positions(to)}
	if a.Threads, a.Next, err = c.store.Threads(c.R.Context(), c.Tenant, q); err != nil {
		return nil, err
	}
	a.Threads = list(a.Threads)
	return &answer{body: document(a)}, nil
}

// positions returns the last indexed event of each partition.
func positions(to map[int32]int64) []record.Position {
	list := make([]record.Position, 0, len(to))
	for _, p := range slices.Sorted(maps.Keys(to)) {
		if to[p] > 0 {
			list = append(list, record.Position{Partition: p, Offset: to[p] - 1})
		}
	}
	return list
}

func (c *call) thread() (*answer, error) {
	c.details = true
	v, err := c.read(c.store.Lineage)
	if err != nil {
		return nil, err
	}
	details := store.Details{}
	if v.erasedBelow-1 <= v.indexedTo.Offset { // else they may be those of the thread before
		if details, err = c.store.Details(c.R.Context(), c.Tenant, c.threadID); err != nil {
			return nil, err
		}
	}
	a := threadAnswer{Thread: summary(v.runs), Running: running(v.runs), IndexedTo: v.indexedTo}
	a.Details = details
	return &answer{status: v.status, body: document(a)}, nil
}

// running returns the runs that have not ended.
func running(runs []store.Run) []runningRun {
	open := []runningRun{}
	for _, r := range runs {
		if r.Status == record.StatusRunning {
			open = append(open, runningRun{RunID: r.RunID, ClientRunID: r.ClientRunID, BranchID: r.BranchID, Agent: r.Agent, StartedAt: r.StartedAt})
		}
	}
	return open
}

// summary computes a thread's entry in the list of threads from its runs.
func summary(runs []store.Run) store.Thread {
	last := slices.MaxFunc(runs, compareTips)
	t := store.Thread{
		ThreadID: last.ThreadID, Runs: len(runs), Messages: last.MessageCount,
		StartedAt: last.StartedAt, LastRunID: last.RunID, Status: string(last.Status),
	}
	branches := map[string]bool{}
	for _, r := range runs {
		if r.Status == record.StatusRunning {
			t.OpenRuns++
		}
		branches[r.BranchID] = true
		updated := r.StartedAt
		if r.EndedAt != nil {
			updated = *r.EndedAt
		}
		if r.StartedAt.Before(t.StartedAt) {
			t.StartedAt = r.StartedAt
		}
		if updated.After(t.UpdatedAt) {
			t.UpdatedAt = updated
		}
	}
	t.Branches = len(branches)
	return t
}

// compareTips orders a thread's runs so that the thread's tip (lineage.Graph.Tip) is the greatest: a parent starts before its children.
func compareTips(a, b store.Run) int {
	switch {
	case a.Spawned == b.Spawned:
		return compareRows(a, b)
	case a.Spawned:
		return -1
	}
	return 1
}

// compareRows orders a thread's runs by start.
func compareRows(a, b store.Run) int {
	return cmp.Or(cmp.Compare(a.Raw.First, b.Raw.First), cmp.Compare(a.RunID, b.RunID))
}
