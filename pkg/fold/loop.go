package fold

import (
	"bytes"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/record"
)

// Loop folds the records of skein.events into runs, in offset order. It decides everything that is the same for all
// callers: whether a record is an event, an input, a repeat or malformed, and what is hashed and counted.
type Loop struct {
	// Runs may be replaced between two records.
	Runs    Runs
	decoded Decoded
}

// Runs decides which run a record belongs to and what a run starts from. Callers of a Loop differ in these decisions.
type Runs interface {
	// Find returns the run that a record belongs to. If it belongs to none, Find returns nil and the record's outcome.
	Find(d *Decoded) (*Run, Outcome, error)
	starter
}

// starter begins the fold of a run.
type starter interface {
	// Begin starts the fold of a run at what may be its first event. The argument input was sent before or with this
	// event; it is nil if there is none. If package compact refuses the event, the run begins with a later one, so a
	// second call must have the same effect as the first.
	Begin(r *Run, first *Decoded, input *agui.RunAgentInput) (*compact.Run, error)
}

// NewLoop returns a loop that folds into runs.
func NewLoop(runs Runs) *Loop { return &Loop{Runs: runs} }

// Next folds the next record and returns its run (nil: none) and its outcome. An error comes from Find or Begin and
// never concerns the record.
func (l *Loop) Next(e *record.Event) (*Run, Outcome, error) {
	d := &l.decoded
	d.Reset(e)
	r, outcome, err := l.Runs.Find(d)
	if r == nil || err != nil {
		return nil, outcome, err
	}
	outcome, err = r.step(d, l.Runs)
	return r, outcome, err
}

// Decoded returns the last record that was passed to Next.
func (l *Loop) Decoded() *Decoded { return &l.decoded }

// Decoded is a record of skein.events that a Loop handles. Its value is decoded at most once, on first use. It is valid
// until the next record.
type Decoded struct {
	record.Event

	decoded   bool
	event     agui.Decoder // reused for each record
	inPlace   bool         // event is the RUN_ERROR in place of a malformed end (Decode)
	input     *agui.RunAgentInput
	sum       string
	malformed error
}

// Reset sets d to a record that is not decoded yet.
func (d *Decoded) Reset(e *record.Event) {
	d.Event, d.decoded, d.inPlace, d.input, d.sum, d.malformed = *e, false, false, nil, "", nil
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
	if d.malformed = d.event.Decode(d.Value); d.malformed != nil {
		if end := endInPlace(d.Value, d.malformed); end != nil {
			d.event.Event, d.inPlace = *end, true
		}
	}
}

// CodeNoEnd is the code of the RUN_ERROR that ends a run whose agent has not ended it by an event that clients can read.
const CodeNoEnd = "agent-no-end"

// Decode is agui.Decode, except that for a malformed RUN_FINISHED or RUN_ERROR it returns, with the error, the RUN_ERROR
// that ends the run in its place. A client stops at such an event, so no other end may follow, and the run would stay open.
func Decode(value []byte) (ev *agui.Event, malformed error) {
	if ev, malformed = agui.Decode(value); malformed != nil {
		return endInPlace(value, malformed), malformed
	}
	return ev, nil
}

// endInPlace returns the RUN_ERROR in place of a malformed terminal event; nil if the value is none. Its RunID is that of
// a RUN_FINISHED in which it can be read.
func endInPlace(value []byte, malformed error) *agui.Event {
	t := agui.TypeOf(value)
	if !t.Terminal() {
		return nil
	}
	ev, err := agui.Decode(agui.RunErrorOf(NoEndText(malformed), CodeNoEnd))
	if err != nil { // impossible: it contains only strings
		return nil
	}
	if _, bad := agui.Envelope(value); bad == nil && t == agui.RunFinished {
		if id := agui.Lookup(value, agui.FieldRunID.String()); agui.IsString(id) {
			ev.RunID = agui.TextOf(id).String()
		}
	}
	return ev
}

// NoEndText is the message of the RUN_ERROR in place of a malformed terminal event.
func NoEndText(malformed error) string {
	return "the agent ended the run with an event that no client can read: " + textOf(malformed)
}

// textOf returns the text of an error, cut, as it may quote what the agent sent.
func textOf(malformed error) string {
	const most = 512
	text := malformed.Error()
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

// Malformed returns why the value is not an event or input, or why the run could not fold it; nil if it is well-formed.
func (d *Decoded) Malformed() error {
	d.decode()
	return d.malformed
}

// Payload returns the AG-UI event, which shares the record's bytes; nil for an input or a malformed value. For a
// malformed end it returns the event in its place (Decode).
func (d *Decoded) Payload() *agui.Event {
	if d.Headers.Kind == record.KindInput || d.Malformed() != nil && !d.inPlace {
		return nil
	}
	return &d.event.Event
}

// Input returns the input that was sent beside the stream; nil for an event or a malformed value.
func (d *Decoded) Input() *agui.RunAgentInput {
	d.decode()
	return d.input
}

// SHA256 returns the hash of the value.
func (d *Decoded) SHA256() string {
	if d.sum == "" {
		d.sum = record.SHA256(d.Value)
	}
	return d.sum
}

// ClientRunID returns the record's client run id: from its header, else from the payload of an input, RUN_STARTED or
// RUN_FINISHED; "" if it has none.
func (d *Decoded) ClientRunID() string {
	if d.Headers.RunID != "" {
		return d.Headers.RunID
	}
	if in := d.Input(); in != nil {
		return validID(in.RunID)
	}
	return ClientRunID(d.Payload())
}

// ClientRunID returns the client run id in an event's payload; "" if it has none or ev is nil.
func ClientRunID(ev *agui.Event) string {
	if ev == nil {
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

// SyntheticEnd reports whether the record is a terminal event that Skein's proxy wrote in place of the agent, or a
// malformed one. It ends the run like an agent's event but is neither counted nor hashed, because count and hash cover
// only events that the agent's clients can read.
func (d *Decoded) SyntheticEnd() bool {
	ev := d.Payload()
	return ev != nil && ev.Type.Terminal() && (d.Headers.Synthetic || d.inPlace)
}
