package admin

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

const (
	// watchEvery is the time between two looks at the checks.
	watchEvery = 5 * time.Second
	// sayAgain is the least time between two lines about one check that goes on failing, for another reason.
	sayAgain = time.Minute
	// stuckAfter is how long a part may take for one turn while all that it depends on answers. All waits
	// for others are bounded below it; what is left is a part that will never go on.
	stuckAfter = 5 * time.Minute
)

// beat tells when a part of the process has last come round.
type beat struct {
	name string
	last func() time.Time
}

// AddBeat makes liveness depend on a part of the process that works in turns: last says when it has
// begun its present one, or now, where it waits for work. It counts once Watch runs.
func (a *Admin) AddBeat(name string, last func() time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.beats = append(a.beats, beat{name, last})
}

// stuck returns the parts that stand still with nobody else to blame.
func (a *Admin) stuck(now time.Time) map[string]string {
	a.mu.Lock()
	beats, since := append([]beat(nil), a.beats...), a.trouble
	a.mu.Unlock()
	out := make(map[string]string)
	for _, b := range beats {
		last := b.last()
		if last.Before(since) {
			last = since
		}
		if stands := now.Sub(last); !since.IsZero() && stands > stuckAfter {
			out[b.name] = fmt.Sprintf("it stands still for %v, and nothing that it depends on fails", stands.Round(time.Second))
		}
	}
	return out
}

// Watch looks at the checks until ctx ends. It logs one line when a check begins to fail, and one when it
// passes again: whoever reads the log need not ask.
func (a *Admin) Watch(ctx context.Context, logger *slog.Logger) {
	type failing struct {
		text        string
		since, said time.Time
	}
	failed := make(map[string]*failing)
	a.noteTrouble(time.Now())
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		results := a.look(ctx)
		if ctx.Err() != nil {
			return
		}
		now := time.Now()
		for _, r := range results {
			if r.err != nil && (r.kind == dependency || r.kind == optional) {
				a.noteTrouble(now)
			}
			f := failed[r.name]
			switch {
			case r.err == nil && f != nil:
				logger.Info("check passes again", "check", r.name, "after", now.Sub(f.since).Round(time.Second).String())
				delete(failed, r.name)
			case r.err == nil:
			case f == nil:
				f = &failing{since: now}
				failed[r.name] = f
				fallthrough
			case f.text != r.err.Error() && now.Sub(f.said) >= sayAgain:
				f.text, f.said = r.err.Error(), now
				logger.Warn("check fails", "check", r.name, "error", r.err)
			}
		}
	}
}

func (a *Admin) noteTrouble(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trouble = now
}
