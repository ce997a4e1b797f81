package steps

import (
	"context"
	"errors"
)

// pageSteps is how many steps Find requests at once, the maximum of the API.
const pageSteps = 1000

// Found is the result of Find.
type Found struct {
	// Moment is the first moment at which the condition was true; nil if there is none.
	Moment *Moment
	// Looked is the number of evaluated events.
	Looked int
	// Undecided is the error of the last event at which the condition was neither true nor false; nil if there is none.
	Undecided error
}

// Find looks for the first event of a run at which a condition is true. It considers only steps that the argument within accepts,
// and calls progress with the number of steps read.
func Find(ctx context.Context, source Source, c *Condition, within func(Step) bool, progress func(done, total int)) (Found, error) {
	var f Found
	for from := 0; ; {
		p, err := source(ctx, from, pageSteps)
		if err != nil {
			return f, err
		}
		moments, err := p.Moments()
		if err != nil {
			return f, err
		}
		for _, m := range moments {
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
		progress(from+len(moments), p.Total+1)
		if p.Next == nil {
			return f, nil
		}
		from = *p.Next
	}
}
