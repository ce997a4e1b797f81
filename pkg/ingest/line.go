package ingest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/tail"
)

// line follows the claims of one thread for the starts that this process decides.
type line struct {
	users  int // guarded by the lock of lines
	stop   context.CancelFunc
	joined chan struct{} // closed once the line reads, so that it meets what is written from then on

	mu       sync.Mutex
	lineup   lineup
	verdict  map[string]*verdict // of the claims that wait for it, by claim id
	moved    chan struct{}       // closed and replaced when something changes
	deciding string              // the run of a start under reject that may have claimed the thread and is not decided
	err      error               // a newer Skein wrote to the thread
}

// verdict is what a claim met at its offset.
type verdict struct {
	done   chan struct{}
	before []standing
}

// lines has the lines in use, by record key.
type lines struct {
	mu sync.Mutex
	of map[string]*line
}

// line returns the line of the target's thread, once it reads. Call leave when it is no longer needed.
func (s *Service) line(ctx context.Context, t target) (_ *line, leave func(), err error) {
	s.lines.mu.Lock()
	l := s.lines.of[t.key]
	if l == nil {
		l = &line{joined: make(chan struct{}), lineup: newLineup(), verdict: map[string]*verdict{}, moved: make(chan struct{})}
		var of context.Context
		of, l.stop = context.WithCancel(context.Background())
		s.lines.of[t.key] = l
		s.claiming.Go(func() { l.follow(of, s, t) })
	}
	l.users++
	s.lines.mu.Unlock()
	leave = sync.OnceFunc(func() {
		s.lines.mu.Lock()
		defer s.lines.mu.Unlock()
		if l.users--; l.users == 0 {
			l.stop()
			delete(s.lines.of, t.key)
		}
	})
	select {
	case <-l.joined:
		return l, leave, nil
	case <-ctx.Done():
		leave()
		return nil, nil, context.Cause(ctx)
	}
}

// follow reads the thread until ctx ends or a newer Skein has written to it.
func (l *line) follow(ctx context.Context, s *Service, t target) {
	from, joined := int64(-1), false
	for ctx.Err() == nil {
		next, err := l.read(ctx, s, t, from, func() {
			if !joined {
				joined = true
				close(l.joined)
			}
		})
		if from = next; errors.Is(err, tail.ErrGone) {
			from = -1
		}
		switch {
		case ctx.Err() != nil || errors.Is(err, tail.ErrClosed):
			return
		case errors.Is(err, record.ErrUnknownVersion):
			l.change(func() { l.err = err })
			return
		}
		s.logger.Warn("reading claims of runs", "thread_id", t.thread, "topic", s.topics.Events, "partition", t.partition, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// read applies the thread's records from an offset on, or those of the claim window if it is -1. It returns the offset to continue from.
func (l *line) read(ctx context.Context, s *Service, t target, from int64, joined func()) (int64, error) {
	var r *tail.Reader
	var err error
	if from >= 0 {
		r, err = s.log.Follow(ctx, t.key, t.partition, from)
	} else {
		r, err = s.log.FollowSince(ctx, t.key, t.partition, claimWindow)
	}
	if err != nil {
		return from, err
	}
	defer r.Close()
	joined()
	for {
		batch, err := r.Next(ctx)
		if err != nil {
			return r.Through(), err
		}
		l.change(func() {
			for _, m := range batch.Records {
				if s.cfg.Kafka.IngestKeys.Refuses(m) {
					continue
				}
				var id string
				var before []standing
				if id, before, err = l.lineup.take(m); err != nil {
					return
				}
				if v := l.verdict[id]; v != nil {
					delete(l.verdict, id)
					v.before = before
					close(v.done)
				}
			}
		})
		if err != nil {
			return r.Through(), err
		}
	}
}

func (l *line) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.moved)
	l.moved = make(chan struct{})
}

// decide lets a start under reject claim the thread, one at a time. Else it returns the run before it.
func (l *line) decide(run string) (before string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.deciding == "":
		l.deciding = run
		return ""
	case len(l.lineup.standing) > 0:
		return l.lineup.standing[0].run
	}
	return l.deciding
}

// expect returns the verdict of a claim that is not written yet, or the error that has ended the line.
func (l *line) expect(id string) (*verdict, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &verdict{done: make(chan struct{})}
	l.verdict[id] = v
	return v, l.err
}

// forget drops a verdict that nobody waits for.
func (l *line) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.verdict, id)
}

// look returns the runs before a claim, first come first, and a channel that is closed when they may have changed. lost means that the
// claim no longer counts, or did not for a while. It removes runs that have ended from others.
func (l *line) look(id string, others map[string]bool) (before []string, lost bool, moved <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.lineup.standing, func(s standing) bool { return s.id == id })
	for _, s := range l.lineup.standing[:max(i, 0)] {
		before = append(before, s.run)
	}
	maps.DeleteFunc(others, func(run string, _ bool) bool { _, ended := l.lineup.ended[run]; return ended })
	return slices.AppendSeq(before, maps.Keys(others)), i < 0 || l.lineup.expired[id], l.moved, l.err
}
