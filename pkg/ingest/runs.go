package ingest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/skeinhq/skein/internal/front"
)

// Runs contains the runs that this process serves as a proxy, each from its input until its last event is acknowledged.
// If one stream has several runs, all of them stay until the last event of the last run is acknowledged.
type Runs struct {
	mu     sync.Mutex
	held   map[runKey]*proxied
	closed bool
	empty  chan struct{} // closed when closed is set and held is empty
	memory *front.Memory // each run acquires runKeyBytes of it
	used   used
}

// usedFor is how long the id of an ended run is refused. Automatic retries arrive within this time.
const usedFor = 10 * time.Minute

// runKey identifies a run by its thread's record key, which includes the tenant, and its run id.
type runKey struct{ thread, run string }

// runKeyBytes is the approximate memory of an entry. An agent may begin many runs in one stream, so each run acquires
// it.
const runKeyBytes = 4 << 10

func newRuns(memory *front.Memory) *Runs {
	return &Runs{held: map[runKey]*proxied{}, empty: make(chan struct{}), memory: memory,
		used: used{of: map[string][]endedRun{}}}
}

var errDraining = fmt.Errorf("%w: this process is about to stop: send the request again, another one takes it", ErrUnavailable)

// hold registers a run of a proxied stream. It refuses a run whose id is in use, or for which the tenant has no memory.
// If the run is the stream's first one, hold also refuses an id that was used recently, and any id once the process
// stops.
func (r *Runs) hold(p *proxied, run string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	key, first := runKey{p.target.key, run}, len(p.keys) == 0
	switch _, ok := r.held[key]; {
	case first && r.closed:
		return errDraining
	case ok:
		return underWay(run)
	case first && r.used.has(p.target.tenant, key):
		return front.Refuse(http.StatusConflict, reasonUsed, "the run %.200q of this thread has ended, and would not be recorded again: use another runId, or read its history", run)
	case !r.memory.Take(p.target.tenant, runKeyBytes):
		return r.memory.Refuse(0, runKeyBytes)
	}
	p.keys = append(p.keys, key)
	r.held[key] = p
	p.svc.metrics.held.Set(float64(len(r.held)))
	return nil
}

func underWay(run string) error {
	return front.Refuse(http.StatusConflict, reasonHeld, "the run %.200q of this thread is in progress: use another runId, or read its events so far", run)
}

func (r *Runs) release(p *proxied) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range p.keys {
		delete(r.held, key)
		r.memory.Give(p.target.tenant, runKeyBytes)
		if p.called {
			r.used.add(p.target.tenant, key)
		}
	}
	p.svc.metrics.held.Set(float64(len(r.held)))
	if r.closed && len(r.held) == 0 {
		close(r.empty)
	}
}

// Cancel ends an open run that this process serves. It closes the agent's connection and keeps the events that were
// read. If these do not end the run, the proxy writes RUN_FINISHED with the outcome cancelled and the reason, marked as synthetic, to
// the topic and to the caller. Cancel does not wait for this, which takes milliseconds, or up to endGrace if the caller
// does not read. Cancel returns false if this process does not serve the run, or if the run has ended or is already
// ending. The argument threadKey comes from record.ThreadKey.
func (r *Runs) Cancel(threadKey, runID, reason string) bool {
	r.mu.Lock() // held until Cancel returns, so that the stream cannot begin another run meanwhile
	defer r.mu.Unlock()
	key := runKey{threadKey, runID}
	p := r.held[key]
	return p != nil && p.keys[len(p.keys)-1] == key && p.end(&stop{reason})
}

// CancelThread is Cancel for all runs of the thread whose stream's first record lies before an offset.
func (r *Runs) CancelThread(threadKey string, before int64, reason string) bool {
	some := false
	for _, p := range r.all() {
		at := p.spool.begun.Load()
		if p.target.key == threadKey && at >= 0 && at < before && p.end(&stop{reason}) {
			some = true
		}
	}
	return some
}

// Held reports whether this process serves the run: its agent is still running or its last events are not acknowledged.
func (r *Runs) Held(threadKey, runID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.held[runKey{threadKey, runID}]
	return ok
}

// Publishing returns the number of runs whose stream has ended and whose last events are not acknowledged.
func (r *Runs) Publishing() int {
	n := 0
	for _, p := range r.all() {
		if p.spool.isClosed() {
			n++
		}
	}
	return n
}

// endAll ends all runs with a reason and refuses new ones.
func (r *Runs) endAll(reason error) {
	r.seal()
	for _, p := range r.all() {
		p.end(reason)
	}
}

// seal refuses new runs.
func (r *Runs) seal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.closed = true
		if len(r.held) == 0 {
			close(r.empty)
		}
	}
}

func (r *Runs) all() []*proxied {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*proxied, 0, len(r.held))
	for _, p := range r.held {
		all = append(all, p)
	}
	return all
}

// close refuses new runs and waits until no run is left or ctx ends. If ctx ends, it abandons the remaining runs and
// returns the number of unacknowledged records and of their runs.
func (r *Runs) close(ctx context.Context) (records, runs int) {
	r.seal()
	select {
	case <-r.empty:
	case <-ctx.Done():
	}
	for _, p := range r.all() {
		if n := p.spool.abandon(); n > 0 {
			records += n
			runs++
		}
	}
	return records, runs
}

// maxUsed is how many ids of ended runs are remembered per tenant.
const maxUsed = 4_096

// used remembers the ids of ended runs for usedFor. If a tenant has more than maxUsed, its oldest id is forgotten.
type used struct {
	of    map[string][]endedRun // by tenant, oldest end first; no list is empty
	swept time.Time             // when tenants with only expired ids were last removed
}

type endedRun struct {
	key runKey
	at  time.Time
}

func (e endedRun) expired() bool { return time.Since(e.at) >= usedFor }

func (u *used) has(tenant string, key runKey) bool {
	return slices.ContainsFunc(u.of[tenant], func(e endedRun) bool { return e.key == key && !e.expired() })
}

func (u *used) add(tenant string, key runKey) {
	if u.has(tenant, key) { // a stream may begin the same run again
		return
	}
	if time.Since(u.swept) >= usedFor {
		maps.DeleteFunc(u.of, func(_ string, runs []endedRun) bool { return runs[len(runs)-1].expired() })
		u.swept = time.Now()
	}
	runs := append(u.of[tenant], endedRun{key, time.Now()})
	u.of[tenant] = runs[max(0, len(runs)-maxUsed):]
}
