package fold

import (
	"cmp"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/record"
)

// Outcomes finds the outcomes of a recorded run's events. Whether an event can be folded does not depend on the history
// before the run. The run is therefore folded from an empty history, and not folded at all if it is steady (Steady).
type Outcomes struct {
	run    *Run // nil if the run is steady
	raw    record.Raw
	signed bool // ingest signed a record of the run
}

// NewOutcomes returns the Outcomes of the run with this record.
func NewOutcomes(rec *record.Run) *Outcomes {
	if Steady(rec) {
		return &Outcomes{raw: rec.Raw}
	}
	return &Outcomes{run: NewRun(rec.ThreadID, rec.RunID, cmp.Or(rec.ClientRunID, rec.RunID)), raw: rec.Raw}
}

// Steady reports whether no event's outcome depends on the events before it.
func (o *Outcomes) Steady() bool { return o.run == nil }

// LeavesOut reports whether the run's record does not include a record below its end. Call it in order, and Of only for what is included.
func (o *Outcomes) LeavesOut(d *Decoded) bool {
	return !o.raw.Has(d.Offset) || joinedOver(&o.raw, d, &o.signed)
}

// Of returns the outcome of a record of the run. Unless the run is steady, call it with all records of the run in
// order.
func (o *Outcomes) Of(d *Decoded) (Outcome, error) {
	switch {
	case o.run != nil:
		return o.run.step(d, fromNothing{})
	case d.Headers.Kind == record.KindInput:
		return Input, nil
	case d.SyntheticEnd():
		return SyntheticEnd, nil
	}
	return Folded, nil
}

// Fold returns the fold of a run that is not steady; nil before its first event.
func (o *Outcomes) Fold() *compact.Run {
	if o.run == nil {
		return nil
	}
	return o.run.Fold
}

type fromNothing struct{}

func (fromNothing) Begin(*Run, *Decoded, *agui.RunAgentInput) (*compact.Run, error) {
	r := compact.New(nil, nil)
	r.Keep(agui.NoFamilies)
	return r, nil
}

// Steady reports whether the run's record folded all its events. Then no event's outcome depends on the events before
// it.
func Steady(r *record.Run) bool {
	return r.Stats.Anomalies[AnomalyRepeat] == 0 && r.Stats.Anomalies[AnomalyBackwards] == 0 && r.Stats.Anomalies[AnomalyMalformed] == 0
}
