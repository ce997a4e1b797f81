package fold

import (
	"bytes"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

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

// SyntheticEnd reports whether the record is a terminal event that Skein's proxy wrote in the agent's place. It ends the run like one of the
// agent, but is neither counted nor hashed, as counts and hash cover what the agent sent.
func (d *Decoded) SyntheticEnd() bool {
	if !d.Headers.Synthetic {
		return false
	}
	ev := d.Payload()
	return ev != nil && ev.Type.Terminal()
}
