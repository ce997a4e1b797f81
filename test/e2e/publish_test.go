package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/record"
)

// width is how many threads have a run open at a time.
const width = 8

// largestPart is how many events at most go out with one request.
const largestPart = 12

// publisher plays recorded threads through ingest in small parts, always going on with any one of
// the threads that are open: runs of many threads interleave in each partition.
type publisher struct {
	// ingestAPI is each tenant's client of ingest.
	ingestAPI map[string]*client.Client
	rng       *rand.Rand
	// sent counts events, open the runs that have begun and not ended, refused the requests that were told
	// to come again.
	sent, open, refused int
	// before is called ahead of each request, with the key of its thread.
	before func(key string)
	// last is the position of each run's last event.
	last map[runKey]string
}

type runKey struct{ tenant, thread, run string }

// playing is a thread that is being published: the run of its first one that is not done.
type playing struct {
	story
	run   int
	begun bool // its input was taken
	lines [][]byte
	seq   int
}

// publish plays all stories.
func (p *publisher) publish(ctx context.Context, stories []story) error {
	p.last = make(map[runKey]string)
	var open []*playing
	for len(stories) > 0 || len(open) > 0 {
		for len(open) < width && len(stories) > 0 {
			open = append(open, &playing{story: stories[0]})
			stories = stories[1:]
		}
		i := p.rng.IntN(len(open))
		done, err := p.step(ctx, open[i])
		if err != nil {
			return err
		}
		if done {
			open = append(open[:i], open[i+1:]...)
		}
	}
	return nil
}

// step sends the next part of a thread and reports whether it was the last.
func (p *publisher) step(ctx context.Context, t *playing) (bool, error) {
	api, run := p.ingestAPI[t.tenant], t.thread.Runs[t.run]
	key, err := record.ThreadKey(t.tenant, run.ThreadID)
	if err != nil {
		return false, err
	}
	p.before(key)
	if !t.begun {
		t.lines = run.Lines()
		if _, err := api.PutInput(ctx, run.ThreadID, run.RunID, run.Input); err != nil {
			if _, again := p.comeAgain(err); again {
				return false, nil
			}
			return false, fmt.Errorf("sending input of %s: %w", run.File, err)
		}
		t.begun = true
		p.open++
	}
	part := t.lines[t.seq:min(t.seq+1+p.rng.IntN(largestPart), len(t.lines))]
	var body bytes.Buffer // numbered, as what was not acknowledged is sent again
	for i, e := range part {
		fmt.Fprintf(&body, "{\"seq\":%d,\"event\":%s}\n", t.seq+i, e)
	}
	ack, err := api.PostEvents(ctx, run.ThreadID, run.RunID, client.TypeSequenced, &body)
	if err != nil {
		// It says how many are there. Others may be, too: they are sent again with their numbers.
		if accepted, again := p.comeAgain(err); again {
			t.seq += accepted
			p.sent += accepted
			return false, nil
		}
		return false, fmt.Errorf("sending events %d to %d of %s: %w", t.seq, t.seq+len(part)-1, run.File, err)
	}
	if ack.Accepted != int64(len(part)) {
		return false, fmt.Errorf("sending events of %s: %d of %d were accepted", run.File, ack.Accepted, len(part))
	}
	p.sent += len(part)
	if t.seq += len(part); t.seq < len(t.lines) {
		return false, nil
	}
	p.open--
	p.last[runKey{t.tenant, run.ThreadID, run.RunID}] = strconv.Itoa(int(ack.Partition)) + ":" + strconv.FormatInt(ack.LastOffset, 10)
	t.seq, t.begun = 0, false
	t.run++
	return t.run == len(t.thread.Runs), nil
}

// comeAgain reports whether ingest has told a caller to come again, and how many events it took before.
func (p *publisher) comeAgain(err error) (accepted int, again bool) {
	var said *client.Error
	if !errors.As(err, &said) || said.Status != http.StatusServiceUnavailable {
		return 0, false
	}
	p.refused++
	time.Sleep(100 * time.Millisecond) // it says seconds
	return max(int(said.Accepted), 0), true
}
