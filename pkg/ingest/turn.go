package ingest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/ingest/agents"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/tenant"
)

const (
	// claimWait is how long a start waits until its process reads the thread.
	claimWait = 5 * time.Second
	// rejectWait is how long a start under reject waits for the claims before its own to go: they may be of starts that are refused, which
	// would refuse each other for ever.
	rejectWait = 250 * time.Millisecond
	// othersWait is how long a start waits for query's answer which runs of the thread are open. Without it, it goes on.
	othersWait = time.Second
)

// reasonNext is the reason in the end of a run that another start has stopped.
const reasonNext = "another run of the thread was started"

// turn is a proxied run's claim to be the only run of its thread. The process renews it until the run's end.
type turn struct {
	p      *proxied
	target target
	line   *line
	// others are the open runs that have no claims, as those of plain producers, by client run id.
	others map[string]bool
	over   context.Context // ends the renewals
	end    context.CancelFunc
	again  *time.Ticker // of the renewals

	mu    sync.Mutex
	claim claim // as it is renewed
}

// takeTurn waits until the policy of the agent lets the run begin, or returns why it does not begin: errLeft if the caller has left. If the
// run was ended meanwhile, as by a request to stop it, takeTurn returns no error, and the proxy writes the run's end. Call end before the
// run's end is written.
func (p *proxied) takeTurn(r *http.Request) (_ *turn, err error) {
	ctx := r.Context()
	join, joined := context.WithTimeoutCause(ctx, claimWait, fmt.Errorf("%w: the claims of the thread's runs cannot be read", ErrUnavailable))
	defer joined()
	line, leave, err := p.svc.line(join, p.target)
	switch {
	case ctx.Err() != nil:
		return nil, left(ctx)
	case err != nil:
		return nil, err
	}
	defer leave()
	t, policy := &turn{p: p, target: p.target, line: line}, p.agent.Runs
	if policy == agents.Reject {
		if run := line.decide(p.target.run); run != "" {
			return nil, p.busy(run)
		}
		defer line.change(func() { line.deciding = "" })
	}
	t.over, t.end = context.WithCancel(context.Background())
	t.again = time.NewTicker(claimAgain)
	defer func() {
		if err != nil {
			t.withdraw()
		}
	}()
	before, err := t.write(ctx)
	switch {
	case err != nil:
		return nil, err
	case policy == agents.Reject && len(before) > 0:
		soon, stop := context.WithTimeoutCause(ctx, rejectWait, errNotEnded)
		defer stop()
		if err := t.wait(r.WithContext(soon)); err != nil {
			return nil, err
		}
	}
	p.svc.claiming.Go(t.renew)
	t.others = p.openRuns(r)
	holders, lost, _, err := line.look(t.claim.ID, t.others)
	switch waiting := len(before) + min(len(t.others), 1) - 1; {
	case err != nil:
		return nil, err
	case lost:
		return nil, fmt.Errorf("%w: the run's claim to its thread has expired", ErrUnavailable)
	case len(holders) == 0:
		return t, nil
	case slices.Contains(holders, p.target.run): // it would wait for itself, or stop both
		return nil, underWay(p.target.run)
	case policy == agents.Reject:
		return nil, p.busy(holders[0])
	case policy == agents.Queue && waiting >= p.agent.MaxQueued:
		full := front.Refuse(http.StatusTooManyRequests, reasonQueue,
			"%d starts of runs wait for the thread already, which the run %.200q holds: try again later", waiting, holders[0])
		full.Limit, full.Retry = "queue", retryAfter
		return nil, full
	}
	p.heed() // from now on, not only once the run begins
	if policy == agents.Queue {
		p.wire.begin()
		return t, t.wait(r)
	}
	late, stop := context.WithTimeoutCause(ctx, p.svc.cancelWait, errNotEnded)
	defer stop()
	at := *t.claim.At
	p.svc.claiming.Go(func() { t.stopThose(late, at) })
	return t, t.wait(r.WithContext(late))
}

// busy is the refusal of a start under the policy reject.
func (p *proxied) busy(run string) error {
	return front.Refuse(http.StatusConflict, reasonBusy,
		"the run %.200q holds the thread, and the agent takes one run of a thread at a time: wait for its end, or stop it first", run)
}

// write writes a new claim and returns those before it. If that takes longer than claimAgain, it fails: Kafka is too slow for the claim to
// be renewed before others may count it as expired.
func (t *turn) write(ctx context.Context) ([]standing, error) {
	begun := time.Now()
	t.again.Reset(claimAgain)
	late := time.NewTimer(claimAgain)
	defer late.Stop()
	c := claim{ID: rand.Text()}
	v, err := t.line.expect(c.ID)
	defer t.line.forget(c.ID)
	if err != nil {
		return nil, err
	}
	got, err := t.publish(ctx, c)
	if err != nil {
		return nil, err
	}
	c.At = &got.FirstOffset
	t.p.spool.begun.Store(got.FirstOffset)
	t.mu.Lock()
	t.claim = c
	t.mu.Unlock()
	select {
	case <-v.done:
		if time.Since(begun) < claimAgain {
			return v.before, nil
		}
	case <-late.C:
	case <-ctx.Done():
		return nil, left(ctx)
	}
	return nil, fmt.Errorf("%w: the run's claim to its thread was not read back within %v", ErrUnavailable, claimAgain)
}

// left returns why a caller's context has ended.
func left(ctx context.Context) error {
	switch {
	case tenant.Revoked(ctx):
		return tenant.ErrRevoked
	case errors.Is(context.Cause(ctx), errNotEnded):
		return fmt.Errorf("%w: the run's claim to its thread has expired", ErrUnavailable)
	}
	return errLeft
}

func (t *turn) publish(ctx context.Context, c claim) (ack, error) {
	return t.p.svc.publishOne(ctx, t.target, record.KindClaim, producer{}, encoded(c))
}

// wait waits until nothing is before the claim, the run is ended, or the context of the request ends: with errNotEnded if the runs before
// it were asked to stop.
func (t *turn) wait(r *http.Request) error {
	ctx := r.Context()
	again := time.NewTicker(claimAgain)
	defer again.Stop()
	for {
		before, lost, moved, err := t.line.look(t.claim.ID, t.others)
		switch {
		case err != nil:
			return err
		case lost: // it could not be renewed in time, or a run of the same id has ended
			if _, err := t.write(ctx); err != nil {
				return err
			}
			continue
		case len(before) == 0:
			return nil
		}
		select {
		case <-moved:
		case <-again.C:
			if len(t.others) > 0 { // some may have been abandoned
				t.others = t.p.openRuns(r)
			}
		case <-t.p.ctx.Done():
			return nil
		case <-ctx.Done():
			switch {
			case !errors.Is(context.Cause(ctx), errNotEnded):
				return left(ctx)
			case t.p.agent.Runs == agents.Reject:
				return t.p.busy(before[0])
			}
			return front.Refuse(http.StatusConflict, reasonNotEnded,
				"the run %.200q holds the thread and has not ended within %v of the request to stop it: no proxy holds it, and its agent does not read the request",
				before[0], t.p.svc.cancelWait)
		}
	}
}

// stopThose requests that the runs of the thread that began before an offset be stopped, and repeats it as cancelRun does, until ctx ends.
func (t *turn) stopThose(ctx context.Context, before int64) {
	of, value := t.target, encoded(stopRecord{reasonNext, &before})
	of.run = ""
	for _, at := range append([]time.Duration{0}, cancelAgain...) {
		select {
		case <-time.After(at):
		case <-ctx.Done():
			return
		}
		if _, err := t.p.svc.publishOne(ctx, of, record.KindCancel, producer{}, value); err != nil && ctx.Err() == nil {
			t.p.svc.logger.Warn("stopping the runs of a thread for another one", "thread_id", of.thread, "run_id", t.target.run, "error", err)
		}
	}
}

// renew writes the claim again and again until it is over.
func (t *turn) renew() {
	for {
		select {
		case <-t.over.Done():
			return
		case <-t.again.C:
		}
		t.mu.Lock()
		c := t.claim
		t.mu.Unlock()
		if _, err := t.publish(t.over, c); err != nil && t.over.Err() == nil {
			t.p.svc.logger.Warn("a run may lose its claim to its thread", "thread_id", t.target.thread, "run_id", t.target.run, "error", err)
		}
	}
}

// withdraw takes the claim back, in the background.
func (t *turn) withdraw() {
	t.end()
	c := t.claim     // without a lock: renew only reads it, and nothing writes it any more
	if c.At == nil { // it was not written, or will expire
		return
	}
	c.Withdrawn = true
	t.p.svc.claiming.Go(func() {
		if _, err := t.publish(context.Background(), c); err != nil {
			t.p.svc.logger.Warn("withdrawing the claim of a run", "thread_id", t.target.thread, "error", err)
		}
	})
}

// openRuns asks query, as the caller of a request, for the open runs of the thread that have no claims. There are none if query is not
// known, does not answer or refuses the caller: then the runs of plain producers do not count.
func (p *proxied) openRuns(r *http.Request) map[string]bool {
	out := map[string]bool{}
	if p.svc.asking == nil {
		return out
	}
	ctx, stop := context.WithTimeout(r.Context(), othersWait)
	defer stop()
	runs, err := p.svc.askingAs(r).Running(ctx, p.target.thread)
	if err != nil && !client.IsNotFound(err) && !isDenied(err) && !tenant.Revoked(ctx) {
		p.svc.logger.Warn("asking query for the open runs of a thread", "thread_id", p.target.thread, "error", err)
	}
	for _, run := range runs {
		if a, ok := p.svc.agents[run.Agent]; ok && a.OneRun() {
			continue // its claim counts, and without one its process has died
		}
		out[cmp.Or(run.ClientRunID, run.RunID)] = true
	}
	return out
}
