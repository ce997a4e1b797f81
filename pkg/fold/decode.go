package fold

import (
	"bytes"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

// Decoded is a record of skein.events on its way through a Loop. Its value is decoded when something first asks for what it says, and
// once. It is valid until the next record.
type Decoded struct {
	record.Event

	decoded   bool
	event     agui.Event // used again for each record
	input     *agui.RunAgentInput
	sum       string
	malformed error
}

// Decode makes d the given record.
func (d *Decoded) Decode(e record.Event) {
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

// Malformed says why the value is neither an event nor an input, or, once it was refused, why its run cannot fold it; nil where it can.
func (d *Decoded) Malformed() error {
	d.decode()
	return d.malformed
}

// Payload is the AG-UI event, which shares the record's bytes; nil for an input, or where it is malformed.
func (d *Decoded) Payload() *agui.Event {
	if d.Headers.Kind == record.KindInput || d.Malformed() != nil {
		return nil
	}
	return &d.event
}

// Input is the input that was sent beside the stream; nil for an event, or where it is malformed.
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

// ClientRunID is the run that the record names, by the agent's id: in its header, else in the payload of an input, of RUN_STARTED
// and of RUN_FINISHED; "" where it names none.
func (d *Decoded) ClientRunID() string {
	if d.Headers.RunID != "" {
		return d.Headers.RunID
	}
	if in := d.Input(); in != nil {
		return validID(in.RunID)
	}
	return ClientRunID(d.Payload())
}

// ClientRunID is the run that an event names in its payload, by the agent's id; "" where it names none, or is nil.
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

// SyntheticEnd reports whether the record is an end that Skein's proxy wrote in the agent's place. It ends the run as one of the agent
// would, and is neither counted nor hashed: those speak of what the agent said.
func (d *Decoded) SyntheticEnd() bool {
	if !d.Headers.Synthetic {
		return false
	}
	ev := d.Payload()
	return ev != nil && ev.Type.Terminal()
}
