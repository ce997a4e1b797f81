package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Runs are the runs that a process serves as their proxy: from their input until their last event is acknowledged. The runs
// of one stream stay until the last event of the last one is acknowledged.
//
// The reader of cancel records calls Cancel. Held returns the partitions with runs, and OnPartition registers a callback
// for changes of it.
type Runs struct {
	mu   sync.Mutex
	held map[runKey]*proxied
	// partitions counts the runs of each.
	partitions map[int32]int
	watch      func(partition int32, held bool)
	closed     bool
	empty      chan struct{} // closed once closed is set and nothing is held
	most       int
	// used are the ids of runs that have ended, by when, for usedFor: at most as many as may be held. oldest is in that order.
	used   map[runKey]time.Time
	oldest []runKey
}

// usedFor is how long the id of a run that has ended is refused. Automatic retries come within that time.
const usedFor = 10 * time.Minute

// runKey names a run: its thread's record key, which has the tenant, and its id.
type runKey struct{ thread, run string }

func newRuns(most int) *Runs {
	return &Runs{held: map[runKey]*proxied{}, used: map[runKey]time.Time{}, partitions: map[int32]int{}, empty: make(chan struct{}), most: most}
}

var (
	errHeld     = errors.New("this run is under way")
	errUsed     = errors.New("this run has ended")
	errTooMany  = fmt.Errorf("%w: too many runs are under way", ErrUnavailable)
	errDraining = fmt.Errorf("%w: this process is about to stop: send the request again, another one takes it", ErrUnavailable)
)

// hold takes a run in.
func (r *Runs) hold(p *proxied) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := runKey{p.target.key, p.target.run}
	switch _, ok := r.held[key]; {
	case r.closed:
		return errDraining
	case ok:
		return errHeld
	case time.Since(r.used[key]) < usedFor:
		return errUsed
	case len(r.held) >= r.most:
		return errTooMany
	}
	r.add(p, key)
	if r.partitions[p.target.partition]++; r.watch != nil && r.partitions[p.target.partition] == 1 {
		r.watch(p.target.partition, true)
	}
	return nil
}

// holdNext takes in another run of a stream that is held. It reports whether it does: not where a run of that id is held, or too many are.
func (r *Runs) holdNext(p *proxied, run string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := runKey{p.target.key, run}
	if _, ok := r.held[key]; ok || len(r.held) >= r.most {
		return false
	}
	r.add(p, key)
	return true
}

func (r *Runs) add(p *proxied, key runKey) {
	p.keys = append(p.keys, key)
	r.held[key] = p
	p.svc.metrics.held.Set(float64(len(r.held)))
}

func (r *Runs) release(p *proxied) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range p.keys {
		delete(r.held, key)
		if p.called {
			r.used[key] = time.Now()
			r.oldest = append(r.oldest, key)
		}
	}
	for len(r.oldest) > r.most || (len(r.oldest) > 0 && time.Since(r.used[r.oldest[0]]) >= usedFor) {
		delete(r.used, r.oldest[0])
		r.oldest = r.oldest[1:]
	}
	p.svc.metrics.held.Set(float64(len(r.held)))
	if r.partitions[p.target.partition]--; r.partitions[p.target.partition] == 0 {
		delete(r.partitions, p.target.partition)
		if r.watch != nil {
			r.watch(p.target.partition, false)
		}
	}
	if r.closed && len(r.held) == 0 {
		close(r.empty)
	}
}

// OnPartition registers f, which is called when the process gets its first run on a partition of skein.events, and when the
// last one there ends. Calls come in order; f must not block or call back. Register it before the first request.
func (r *Runs) OnPartition(f func(partition int32, held bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watch = f
}

// Cancel ends an open run that this process serves: it closes the agent's connection and keeps what was read. If that
// does not end the run, it writes RUN_FINISHED with the outcome cancelled, marked as synthetic, to the topic and to the
// caller. Cancel does not wait for this, which takes milliseconds, or up to endGrace if the caller does not read. It
// returns false if this process does not serve the run, if the run has ended, or if it is being cancelled already. threadKey
// comes from record.ThreadKey.
func (r *Runs) Cancel(threadKey, runID string) bool {
	r.mu.Lock() // so that no other run of the stream begins meanwhile
	defer r.mu.Unlock()
	key := runKey{threadKey, runID}
	p := r.held[key]
	return p != nil && p.keys[len(p.keys)-1] == key && p.end(errCancelled)
}

// Held reports whether this process holds the run, be it that its agent goes on or that its last events are not acknowledged.
func (r *Runs) Held(threadKey, runID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.held[runKey{threadKey, runID}]
	return ok
}

// Publishing is the number of held runs whose stream is over, and whose last events are not acknowledged.
func (r *Runs) Publishing() int {
	n := 0
	for _, p := range r.all() {
		if p.spool.isClosed() {
			n++
		}
	}
	return n
}

// endAll ends all runs for a reason, and takes none any more.
func (r *Runs) endAll(reason error) {
	r.seal()
	for _, p := range r.all() {
		p.end(reason)
	}
}

// seal takes no run any more.
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

// close takes no run any more, and waits until none is held, or ctx ends: then it returns how many records of
// how many runs were given up.
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
