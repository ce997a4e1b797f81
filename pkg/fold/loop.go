package fold

import (
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/record"
)

// Loop folds the records of skein.events into runs, in offset order. It decides what is the same for all callers: what is an event or an
// input, a repeat or malformed, and what is hashed and counted.
type Loop struct {
	runs    Runs
	decoded Decoded
}

// Runs is what differs between callers of a Loop: which run a record belongs to, and what a run starts from.
type Runs interface {
	// Find returns the run that a record belongs to, or nil and the outcome of a record that belongs to none.
	Find(d *Decoded) (*Run, Outcome, error)
	// Begin starts the fold of a run at what may be its first event. Input came before it or in it; nil without one. Begin must have no
	// side effect that a second call would see: package compact may refuse the event, and the run then begins with a later one.
	Begin(r *Run, first *Decoded, input *agui.RunAgentInput) (*compact.Run, error)
}

// NewLoop returns a loop over the runs.
func NewLoop(runs Runs) *Loop { return &Loop{runs: runs} }

// Next takes the next record and returns its run (nil: none) and its outcome. The error is that of Find or Begin, never about the
// record.
func (l *Loop) Next(e record.Event) (*Run, Outcome, error) {
	d := &l.decoded
	d.Reset(e)
	r, outcome, err := l.runs.Find(d)
	if r == nil || err != nil {
		return nil, outcome, err
	}
	outcome, err = r.step(d, l.runs)
	return r, outcome, err
}

// Decoded returns the last record that Next took.
func (l *Loop) Decoded() *Decoded { return &l.decoded }
