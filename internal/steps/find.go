package steps

import (
	"context"
	"errors"
	"iter"
)

// pageSteps is how many steps Walk requests at once, the maximum of the API.
const pageSteps = 1000

// Walk returns the moments of a run from a step on, up to its last step so far. It calls progress, which may be nil, with the
// number of steps read.
func Walk(ctx context.Context, source Source, from int, progress func(done, total int)) iter.Seq2[Moment, error] {
	return func(yield func(Moment, error) bool) {
		for {
			p, err := source.Page(ctx, from, pageSteps)
			var moments []Moment
			if err == nil {
				moments, err = p.Moments()
			}
			if err != nil {
				yield(Moment{}, err)
				return
			}
			for _, m := range moments {
				if !yield(m, nil) {
					return
				}
			}
			if progress != nil {
				progress(from+len(moments), p.Total+1)
			}
			if p.Next == nil {
				return
			}
			from = *p.Next
		}
	}
}

// Found is the result of Find.
type Found struct {
	// Moment is the first one at which the condition was true; nil if there is none.
	Moment *Moment
	// Looked is the number of evaluated events.
	Looked int
	// Undecided is the error of the last event at which the condition was neither true nor false; nil if there is none.
	Undecided error
}

// Find looks for the first event of a run at which a condition is true, among those that within accepts.
func Find(ctx context.Context, source Source, c *Condition, within func(Step) bool, progress func(done, total int)) (Found, error) {
	var f Found
	for m, err := range Walk(ctx, source, 0, progress) {
		if err != nil {
			return f, err
		}
		if m.N == 0 || !within(m.Step) {
			continue
		}
		f.Looked++
		holds, err := c.Holds(ctx, m)
		var undecided *UndecidedError
		switch {
		case errors.As(err, &undecided):
			f.Undecided = undecided
		case err != nil:
			return f, err
		case holds:
			f.Moment = &m
			return f, nil
		}
	}
	return f, nil
}
