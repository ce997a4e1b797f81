package demo

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
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
	// Settle waits until the API shows all published events. Play calls it only if a run is missing or open, because an interrupted
	// player may have published it just before. It may be nil.
	Settle func(ctx context.Context) error
	// Progress is called after each run with the number of existing runs, by several goroutines. It may be nil.
	Progress func(done, total int)
	// Patience bounds how long the API may take to show a published conversation; 0 is a minute.
	Patience time.Duration
}

// Play publishes every missing run, completes open ones, and returns once the API shows all of them. Playing again adds nothing.
func (p Player) Play(ctx context.Context, conversations []Conversation) (Played, error) {
	total := 0
	for _, c := range conversations {
		total += len(c.Runs)
	}
	existing, missing, err := p.existing(ctx, conversations)
	if err == nil && missing && p.Settle != nil {
		if err := p.Settle(ctx); err != nil {
			return Played{}, fmt.Errorf("waiting for the index: %w", err)
		}
		existing, _, err = p.existing(ctx, conversations)
	}
	if err != nil {
		return Played{}, err
	}

	var done, sent, events atomic.Int64
	step := func() {
		if n := done.Add(1); p.Progress != nil {
			p.Progress(int(n), total)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for i, c := range conversations {
		group.Go(func() error {
			last := ""
			for _, r := range c.Runs {
				if state := existing[i][r.ID]; state.present && !state.open {
					step()
					continue
				}
				position, err := p.send(ctx, c, r, existing[i][r.ID])
				if err != nil {
					return fmt.Errorf("playing %s, run %s: %w", c.ThreadID, r.ID, err)
				}
				last = position
				sent.Add(1)
				events.Add(int64(len(r.Events)))
				step()
			}
			return p.await(ctx, c.ThreadID, last)
		})
	}
	if err := group.Wait(); err != nil {
		return Played{}, err
	}
	return Played{Runs: int(sent.Load()), Events: int(events.Load()), Present: total - int(sent.Load())}, nil
}

// known is the state of a run in the API.
type known struct {
	present bool
	// open means that more of its events may come.
	open bool
}

// existing returns the runs of each conversation in the API, and whether any is missing or open.
func (p Player) existing(ctx context.Context, conversations []Conversation) (all []map[string]known, missing bool, err error) {
	for _, c := range conversations {
		var lineage struct {
			Runs []struct {
				RunID  string `json:"runId"`
				Status string `json:"status"`
			} `json:"runs"`
		}
		body, err := p.Client.Get(ctx, client.ThreadPath(c.ThreadID)+"/lineage", nil)
		if err == nil {
			err = json.Unmarshal(body, &lineage)
		}
		if err != nil && !client.IsNotFound(err) {
			return nil, false, fmt.Errorf("looking for %s: %w", c.ThreadID, err)
		}
		runs := make(map[string]known, len(lineage.Runs))
		for _, r := range lineage.Runs {
			runs[r.RunID] = known{present: true, open: r.Status == "running" || r.Status == "abandoned"}
		}
		all = append(all, runs)
		for _, r := range c.Runs {
			missing = missing || !runs[r.ID].present || runs[r.ID].open
		}
	}
	return all, missing, nil
}

// send publishes a run and returns the position of its last event. Events have their numbers, so that Skein drops those of an
// earlier, interrupted try. The input goes first; for a run that has begun it is not sent again, because it would count as late.
func (p Player) send(ctx context.Context, c Conversation, r Run, state known) (string, error) {
	as := p.Client.As(c.Producer)
	if !state.present {
		if _, err := as.PutInput(ctx, c.ThreadID, r.ID, r.Input); err != nil {
			return "", fmt.Errorf("sending input: %w", err)
		}
	}
	var body bytes.Buffer
	for seq, event := range r.Events {
		fmt.Fprintf(&body, `{"seq":%d,"event":%s}`+"\n", seq, event)
	}
	ack, err := as.PostEvents(ctx, c.ThreadID, r.ID, client.TypeSequenced, &body)
	if err != nil {
		return "", fmt.Errorf("sending events: %w", err)
	}
	return fmt.Sprintf("%d:%d", ack.Partition, ack.LastOffset), nil
}

const (
	// retryPause is the pause between two requests for a thread that the API does not show yet.
	retryPause = 50 * time.Millisecond
	// defaultPatience is many times longer than on the slowest machine.
	defaultPatience = time.Minute
)

// await waits until the API shows a thread up to a position; it returns at once for "". The API itself waits for a while; await
// repeats the request after a 425 or 404.
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
		case err == nil:
			return nil
		case client.IsNotFound(err), errors.As(err, &behind) && behind.Status == 425:
			select {
			case <-waiting.Done():
			case <-time.After(retryPause):
			}
		case waiting.Err() != nil && ctx.Err() == nil:
			return fmt.Errorf("waiting for %s: it was sent, and after %v the index has not got to %s: "+
				"the compactor or the indexer is stuck; --log-level info says more",
				thread, patience, position)
		default:
			return err
		}
	}
}
