package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skeinhq/skein/pkg/client"
)

// workers is how many conversations are played concurrently. The runs of one conversation are played in order.
const workers = 4

// Played has the counts of Play.
type Played struct {
	Runs, Events int
	// Present is the number of runs that existed already.
	Present int
}

// Player plays conversations through the HTTP API.
type Player struct {
	Client *client.Client
	// Settle waits until the API shows all published events. Play calls it once if a run is missing or open, since an interrupted player may
	// just have published part of it. Settle may be nil.
	Settle func(ctx context.Context) error
	// Progress is called after each run with the number of existing runs, by several goroutines. It may be nil.
	Progress func(done, total int)
	// Patience bounds how long the API may take to show a published conversation; 0 means one minute.
	Patience time.Duration
}

// Play publishes every missing run, completes open ones, and returns once the API shows all of them. Playing again adds nothing.
func (p Player) Play(ctx context.Context, conversations []Conversation) (Played, error) {
	total := 0
	for _, c := range conversations {
		total += len(c.Runs)
	}
	var done, sent, events atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	settle := sync.OnceValue(func() error {
		if p.Settle == nil {
			return nil
		}
		return p.Settle(ctx)
	})
	unfinished := func(status string) bool { return status == "" || status == "running" || status == "abandoned" }
	for _, c := range conversations {
		group.Go(func() error {
			existing, err := p.existing(ctx, c.ThreadID)
			if err == nil && slices.ContainsFunc(c.Runs, func(r Run) bool { return unfinished(existing[r.ID]) }) {
				if err = settle(); err == nil {
					existing, err = p.existing(ctx, c.ThreadID)
				}
			}
			if err != nil {
				return fmt.Errorf("looking for %s: %w", c.ThreadID, err)
			}
			last := ""
			for _, r := range c.Runs {
				if status := existing[r.ID]; unfinished(status) {
					if last, err = p.send(ctx, c, r, status == ""); err != nil {
						return fmt.Errorf("playing %s, run %s: %w", c.ThreadID, r.ID, err)
					}
					sent.Add(1)
					events.Add(int64(len(r.Events)))
				}
				if n := done.Add(1); p.Progress != nil {
					p.Progress(int(n), total)
				}
			}
			return p.await(ctx, c.ThreadID, last)
		})
	}
	if err := group.Wait(); err != nil {
		return Played{}, err
	}
	return Played{Runs: int(sent.Load()), Events: int(events.Load()), Present: total - int(sent.Load())}, nil
}

// existing returns the statuses of a thread's runs in the API.
func (p Player) existing(ctx context.Context, thread string) (map[string]string, error) {
	lineage, err := p.Client.Lineage(ctx, thread)
	if client.IsNotFound(err) {
		return nil, nil
	}
	runs := make(map[string]string, len(lineage.Runs))
	for _, r := range lineage.Runs {
		runs[r.RunID] = string(r.Status)
	}
	return runs, err
}

// send publishes a run and returns the position of its last event. It numbers the events, so that Skein drops those of an
// earlier, interrupted try. It sends the input first, unless the run has begun, because the input would then count as late.
func (p Player) send(ctx context.Context, c Conversation, r Run, begins bool) (string, error) {
	input := r.Input
	if !begins {
		input = nil
	}
	sent, err := p.Client.As(c.Producer).Publish(ctx, c.ThreadID, r.ID, input, func(yield func([]byte, error) bool) {
		for _, event := range r.Events {
			if !yield(event, nil) {
				return
			}
		}
	})
	return fmt.Sprintf("%d:%d", sent.Partition, sent.LastOffset), err
}

const (
	// retryPause is the pause between two requests for a thread that the API does not show yet.
	retryPause = 50 * time.Millisecond
	// defaultPatience is many times what the slowest machine needs.
	defaultPatience = time.Minute
)

// await waits until the API shows a thread up to a position; it returns at once for "". The API waits for a while before it
// answers; await repeats the request after a 425 or 404.
func (p Player) await(ctx context.Context, thread, position string) error {
	if position == "" {
		return nil
	}
	patience := cmp.Or(p.Patience, defaultPatience)
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		_, err := p.Client.Get(waiting, client.ThreadPath(thread)+"/lineage", url.Values{"atLeast": {position}})
		var behind *client.Error
		switch {
		case client.IsNotFound(err), errors.As(err, &behind) && behind.Status == http.StatusTooEarly:
			time.Sleep(retryPause)
		case errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("waiting for %s: it was sent, and after %v the index has not got to %s: "+
				"the compactor or the indexer is stuck; --log-level info says more",
				thread, patience, position)
		default:
			return err
		}
	}
}
