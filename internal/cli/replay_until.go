package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/steps"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
)

// findStep returns the first event of a run in a range of skein.events at which the condition is true, or a not-found error.
// Without a condition it returns the first event in the range.
func findStep(
	ctx context.Context, out *output, source steps.Source, condition *steps.Condition, between record.Range,
) (steps.Moment, error) {
	if condition == nil {
		var err error
		if condition, err = steps.NewCondition("true"); err != nil {
			return steps.Moment{}, err
		}
	}
	bar := newProgress(out, "looking")
	defer bar.end()
	f, err := steps.Find(ctx, source, condition, func(s steps.Step) bool { return within(s, between) }, bar.step)
	bar.end()
	switch {
	case errors.Is(err, steps.ErrCost):
		return steps.Moment{}, fmt.Errorf("%w: select fewer events", err)
	case err != nil:
		return steps.Moment{}, err
	case f.Moment != nil:
		return *f.Moment, nil
	case f.Undecided != nil:
		return steps.Moment{}, app.NotFoundf("%s was true at none of %s; the last event at which it could not be evaluated: %w",
			condition, count(f.Looked, "event"), f.Undecided)
	}
	return steps.Moment{}, app.NotFoundf("%s was true at none of %s", condition, count(f.Looked, "event"))
}

// within reports whether a step lies in a range.
func within(s steps.Step, r record.Range) bool {
	if s.Position == nil || s.Time == nil {
		return false
	}
	before := func(p record.Point) bool {
		switch {
		case p.Position != nil:
			return s.Position.Partition != p.Position.Partition || s.Position.Offset < p.Position.Offset
		case p.End:
			return true
		}
		return s.Time.Before(p.At)
	}
	return !before(r.From) && (r.To.IsZero() || before(r.To))
}

// replayUntil returns the exclusive end of a replay that stops after the first event at which a condition is true. It also
// returns a note about that event.
func replayUntil(
	ctx context.Context, out *output, c *client.Client, path string, condition *steps.Condition, between record.Range,
) (end record.Position, note string, err error) {
	m, err := findStep(ctx, out, steps.Of(c, path), condition, between)
	if err != nil {
		return record.Position{}, "", err
	}
	end = *m.Position
	end.Offset++
	note = fmt.Sprintf("stopped at %s, event %d of the run: %s", m.Position, m.N, condition)
	if m.Outcome != fold.Folded {
		note += fmt.Sprintf(" (%s: --all prints it)", m.Outcome)
	}
	return end, note, nil
}
