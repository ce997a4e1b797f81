package admin

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

const (
	// watchEvery is the interval of the checks.
	watchEvery = 5 * time.Second
	// logAgain is the minimum time between two lines about one check that keeps failing with changing errors.
	logAgain = time.Minute
	// stuckAfter is how long a part may make no progress while all its dependencies answer. All timeouts are shorter, so a part that
	// takes longer will never continue.
	stuckAfter = 5 * time.Minute
)

// beat is a part of the process that liveness watches.
type beat struct {
	name string
	last func() time.Time
}

// AddBeat makes liveness depend on the progress of a part of the process. last returns when the part began its current piece of
// work, or the current time while it waits for work. Liveness ignores beats until Watch runs.
func (a *Admin) AddBeat(name string, last func() time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.beats = append(a.beats, beat{name, last})
}

// stuck returns the parts that have made no progress for stuckAfter although no dependency failed.
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
		if still := now.Sub(last); !since.IsZero() && still > stuckAfter {
			out[b.name] = fmt.Sprintf("it stands still for %v, and nothing that it depends on fails", still.Round(time.Second))
		}
	}
	return out
}

// Watch runs the checks until ctx ends. It logs a line when a check begins to fail, and one when it passes again.
func (a *Admin) Watch(ctx context.Context, logger *slog.Logger) {
	type failing struct {
		text          string
		since, logged time.Time
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
			case f.text != r.err.Error() && now.Sub(f.logged) >= logAgain:
				f.text, f.logged = r.err.Error(), now
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
