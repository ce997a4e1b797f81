package demo

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skeinhq/skein/internal/client"
)

// workers is how many conversations are played at once. Runs of one conversation follow one
// another, as they did when they were recorded.
const workers = 4

// Played says what a Player did.
type Played struct {
	Runs, Events int
	// Present is the number of runs that were there already.
	Present int
}

// Player plays conversations through the HTTP API.
type Player struct {
	Client *client.Client
	// Settle waits until what lies on the broker is also what the API shows. It is asked for only
	// where a run is missing or open, since an earlier player may have been cut off right behind
	// sending it. May be nil.
	Settle func(ctx context.Context) error
	// Progress is told after each run how many of all are there, by several goroutines at once.
	// May be nil.
	Progress func(done, total int)
	// Patience bounds how long a conversation may take to be shown once it was sent; 0 is a minute.
	Patience time.Duration
}

// Play sends every run that is not there yet, goes on with those that are there in part, and
// returns once the API shows all of them. Playing again adds nothing.
func (p Player) Play(ctx context.Context, conversations []Conversation) (Played, error) {
	total, missing := 0, false
	there := make([]map[string]known, len(conversations))
	for i, c := range conversations {
		total += len(c.Runs)
		runs, err := p.runs(ctx, c.ThreadID)
		if err != nil {
			return Played{}, err
		}
		there[i] = runs
		missing = missing || !complete(c, runs)
	}
	if missing && p.Settle != nil {
		if err := p.Settle(ctx); err != nil {
			return Played{}, fmt.Errorf("waiting for the index: %w", err)
		}
		for i, c := range conversations {
			runs, err := p.runs(ctx, c.ThreadID)
			if err != nil {
				return Played{}, err
			}
			there[i] = runs
		}
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
				if state := there[i][r.ID]; state.present && !state.open {
					step()
					continue
				}
				position, err := p.send(ctx, c, r, there[i][r.ID])
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

// known is what the API says about a run.
type known struct {
	present bool
	// open is true while more of its events may come.
	open bool
}

func complete(c Conversation, runs map[string]known) bool {
	for _, r := range c.Runs {
		if k := runs[r.ID]; !k.present || k.open {
			return false
		}
	}
	return true
}

func (p Player) runs(ctx context.Context, thread string) (map[string]known, error) {
	body, err := p.Client.Get(ctx, client.ThreadPath(thread)+"/lineage", nil)
	if client.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var lineage struct {
		Runs []struct {
			RunID  string `json:"runId"`
			Status string `json:"status"`
		} `json:"runs"`
	}
	if err := json.Unmarshal(body, &lineage); err != nil {
		return nil, fmt.Errorf("decoding lineage: %w", err)
	}
	runs := make(map[string]known, len(lineage.Runs))
	for _, r := range lineage.Runs {
		runs[r.RunID] = known{present: true, open: r.Status == "running" || r.Status == "abandoned"}
	}
	return runs, nil
}

// send publishes a run and returns the position of its last event. Every event carries its number,
// so that those of an earlier, cut try are dropped; the input goes first and is not sent again to
// a run that has begun, where it would count as late.
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
	return strconv.Itoa(int(ack.Partition)) + ":" + strconv.FormatInt(ack.LastOffset, 10), nil
}

const (
	// askAgain is the pause before a thread is asked for that the API does not know yet.
	askAgain = 50 * time.Millisecond
	// defaultPatience is many times what the slowest machine took.
	defaultPatience = time.Minute
)

// await returns once the API shows a thread up to a position ("" is at once). The API itself waits
// a while; as long as it gives in with 425, or does not know the thread, it is asked again.
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
			case <-time.After(askAgain):
			}
		case waiting.Err() != nil && ctx.Err() == nil:
			return fmt.Errorf("waiting for %s: it was sent, and after %v the index has not got to %s: the compactor or the indexer is stuck; --log-level info says more",
				thread, patience, position)
		default:
			return err
		}
	}
}
