package app

import (
	"context"
	"errors"
	"fmt"
)

// Group runs the parts of a process and stops them in order.
//
// Add a part after the parts that it depends on: a broker before the stages that use it, the stages before the listener that
// passes requests to them. When the context ends, or the first part ends by itself, the group stops the parts in reverse order
// of addition and waits for each before it stops the next. So a running request still has its stage, and a committing stage
// still has its broker.
type Group struct {
	parts []*part
	ended chan *part
}

type part struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// NewGroup returns an empty group.
func NewGroup() *Group { return &Group{ended: make(chan *part, 1)} }

// Go starts a part. The group cancels the part's context when it stops the part, and run must then return; ctx only provides
// values. A part that returns before that, even without an error, stops the group.
func (g *Group) Go(ctx context.Context, name string, run func(ctx context.Context) error) {
	partCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &part{name: name, cancel: cancel, done: make(chan struct{})}
	g.parts = append(g.parts, p)
	go func() {
		defer close(p.done)
		p.err = run(partCtx)
		if partCtx.Err() != nil && errors.Is(p.err, context.Canceled) {
			p.err = nil
		}
		select {
		case g.ended <- p:
		default:
		}
	}()
}

// Closing adds a part that only calls f when the group stops it.
func (g *Group) Closing(ctx context.Context, name string, f func() error) {
	g.Go(ctx, name, func(ctx context.Context) error {
		<-ctx.Done()
		return f()
	})
}

// Wait blocks until ctx or a part ends, stops all parts as Abort does and returns their errors, each with the name of its part.
// It returns nil if only ctx ended.
func (g *Group) Wait(ctx context.Context) error {
	var first *part
	select {
	case <-ctx.Done():
	case first = <-g.ended:
	}
	if first != nil && first.err == nil && ctx.Err() == nil {
		return g.Abort(fmt.Errorf("running %s: ended unexpectedly", first.name))
	}
	return g.Abort(nil)
}

// Abort stops all parts in reverse order of addition and returns cause joined with their errors. Use it if the start-up fails.
func (g *Group) Abort(cause error) error {
	errs := []error{cause}
	for i := len(g.parts) - 1; i >= 0; i-- {
		p := g.parts[i]
		p.cancel()
		<-p.done
		if p.err != nil {
			errs = append(errs, fmt.Errorf("running %s: %w", p.name, p.err))
		}
	}
	return errors.Join(errs...)
}

// Ended reports whether a part has ended by itself, so that a start-up need not wait for it to be ready. Abort returns the part's error.
func (g *Group) Ended() bool {
	for _, p := range g.parts {
		select {
		case <-p.done:
			return true
		default:
		}
	}
	return false
}
