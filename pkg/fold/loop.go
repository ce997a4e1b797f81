package fold

import (
	"bytes"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/record"
)

// Loop folds the records of skein.events into runs, in offset order. It decides what is the same for all callers: what is an event or an
// input, a repeat or malformed, and what is hashed and counted.
type Loop struct {
	// Runs may be replaced between two records.
	Runs    Runs
	decoded Decoded
}

// Runs is what differs between callers of a Loop: which run a record belongs to, and what a run starts from.
type Runs interface {
	// Find returns the run that a record belongs to, or nil and the outcome of a record that belongs to none.
	Find(d *Decoded) (*Run, Outcome, error)
	starter
}

// starter says what a run starts from.
type starter interface {
	// Begin starts the fold of a run at what may be its first event. Input came before it or in it; nil without one. Begin must have no
	// side effect that a second call would see: package compact may refuse the event, and the run then begins with a later one.
	Begin(r *Run, first *Decoded, input *agui.RunAgentInput) (*compact.Run, error)
}

// NewLoop returns a loop over the runs.
func NewLoop(runs Runs) *Loop { return &Loop{Runs: runs} }

// Next takes the next record and returns its run (nil: none) and its outcome. The error is that of Find or Begin, never about the
// record.
func (l *Loop) Next(e record.Event) (*Run, Outcome, error) {
	d := &l.decoded
	d.Reset(e)
	r, outcome, err := l.Runs.Find(d)
	if r == nil || err != nil {
		return nil, outcome, err
	}
	outcome, err = r.step(d, l.Runs)
	return r, outcome, err
}

// Decoded returns the last record that Next took.
func (l *Loop) Decoded() *Decoded { return &l.decoded }

// Decoded is a record of skein.events on its way through a Loop. Its value is decoded once, when it is first needed. It is valid until
// the next record.
type Decoded struct {
	record.Event

	decoded   bool
	event     agui.Event // reused for each record
	input     *agui.RunAgentInput
	sum       string
	malformed error
}

// Reset sets d to a record, which is not decoded yet.
func (d *Decoded) Reset(e record.Event) {
	d.Event, d.decoded, d.input, d.sum, d.malformed = e, false, nil, "", nil
}

func (d *Decoded) decode() {
	if d.decoded {
		return
	}
	d.decoded = true
	if d.Headers.Kind == record.KindInput {
		d.input, d.malformed = agui.DecodeInput(bytes.Clone(d.Value), "")
		return
	}
	d.malformed = d.event.Decode(d.Value)
}

// Malformed is the reason for which the value is no event or input, or for which the run could not fold it; nil if it is well-formed.
func (d *Decoded) Malformed() error {
	d.decode()
	return d.malformed
}

// Payload is the AG-UI event, which shares the record's bytes; nil for an input, or if the value is malformed.
func (d *Decoded) Payload() *agui.Event {
	if d.Headers.Kind == record.KindInput || d.Malformed() != nil {
		return nil
	}
	return &d.event
}

// Input is the input that was sent beside the stream; nil for an event, or if the value is malformed.
func (d *Decoded) Input() *agui.RunAgentInput {
	d.decode()
	return d.input
}

// SHA256 is the hash of the value.
func (d *Decoded) SHA256() string {
	if d.sum == "" {
		d.sum = record.SHA256(d.Value)
	}
	return d.sum
}

// ClientRunID is the client run id of the record: from its header, else from the payload of an input, RUN_STARTED or RUN_FINISHED; "" if
// it has none.
func (d *Decoded) ClientRunID() string {
	if d.Headers.RunID != "" {
		return d.Headers.RunID
	}
	if in := d.Input(); in != nil {
		return validID(in.RunID)
	}
	return ClientRunID(d.Payload())
}

// ClientRunID is the client run id in an event's payload; "" if it has none, or the event is nil.
func ClientRunID(ev *agui.Event) string {
	if ev == nil || ev.Type != agui.RunStarted && ev.Type != agui.RunFinished {
		return ""
	}
	return validID(ev.RunID)
}

func validID(id string) string {
	if record.ValidateID(id) != nil {
		return ""
	}
	return id
}

// SyntheticEnd reports whether the record is a terminal event that Skein's proxy wrote in the agent's place. It ends the run like one
// of the agent, but is neither counted nor hashed, as counts and hash cover what the agent sent.
func (d *Decoded) SyntheticEnd() bool {
	if !d.Headers.Synthetic {
		return false
	}
	ev := d.Payload()
	return ev != nil && ev.Type.Terminal()
}
