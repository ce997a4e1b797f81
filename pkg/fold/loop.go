package fold

import (
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/record"
)

// Loop folds the records of skein.events into runs, in the order of their offsets. It holds what does not depend on who folds: what is
// an event or an input, a repeat or malformed, and what is hashed and counted.
type Loop struct {
	runs    Runs
	decoded Decoded
}

// Runs is what differs between those who fold: which run a record belongs to, and what a run starts from.
type Runs interface {
	// Find returns the run that takes a record. Nil says that no run does, and the outcome what becomes of the record.
	Find(d *Decoded) (*Run, Outcome, error)
	// Begin starts the fold of a run at what may be its first event. Input is the one that came before it, or that it carries; nil
	// without one. Begin must change nothing that a second call would see: compact may refuse the event, and the run then begins
	// with a later one.
	Begin(r *Run, first *Decoded, input *agui.RunAgentInput) (*compact.Run, error)
}

// NewLoop returns a loop over the runs.
func NewLoop(runs Runs) *Loop { return &Loop{runs: runs} }

// Next takes the next record and returns the run that took it (nil: none did) and what became of it. The error is that of
// Find or Begin, never about the record.
func (l *Loop) Next(e record.Event) (*Run, Outcome, error) {
	d := &l.decoded
	d.Decode(e)
	r, outcome, err := l.runs.Find(d)
	if r == nil || err != nil {
		return nil, outcome, err
	}
	outcome, err = r.step(d, l.runs)
	return r, outcome, err
}

// Decoded is the record that Next took last.
func (l *Loop) Decoded() *Decoded { return &l.decoded }
