package app

import (
	"context"
	"errors"
	"fmt"
)

// Group runs the parts of a process and stops them in order.
//
// Parts are added in the order in which they depend on one another: a broker before the stages
// that use it, the stages before the listener that hands requests to them. When the context ends,
// or the first part ends by itself, they are stopped in the reverse order, each one only after the
// one added later has returned. So a request that is being answered still finds its stage, and a
// stage that commits still finds its broker.
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

// Go starts a part. Its context is not cancelled by ctx's cancellation but by the group, when it
// is this part's turn to stop; ctx's values are kept. Run must return after that. A part that
// returns before its context is cancelled, even without an error, stops the group.
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

// Wait blocks until ctx ends or a part ends, stops all parts in order and returns their errors,
// each with the name of its part. It is nil if all that happened was that ctx ended.
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

// Abort stops all parts in order and returns their errors behind cause. It is how a start-up ends
// that could not add all parts.
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

// Ended reports whether a part has ended by itself. It lets a start-up that waits for readiness
// notice that there is nothing to wait for any more; Abort then tells why.
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
