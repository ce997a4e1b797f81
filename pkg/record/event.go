package record

import "time"

// Event is a record of skein.events with its headers decoded. Depending on the kind, the value is an event or an
// input of a run, or a request about a thread.
type Event struct {
	Partition int32
	Offset    int64
	// Time is the Kafka record's timestamp.
	Time    time.Time
	Key     []byte
	Headers Headers
	Value   []byte
	// Signature is what a reader of the topic knows of the record's signature; the compactor has checked it before.
	Signature Signature
}

// Position returns the record's position.
func (e Event) Position() Position { return Position{Partition: e.Partition, Offset: e.Offset} }

// OfRun reports whether the record is an event or an input.
func (e Event) OfRun() bool { return e.Headers.Kind == KindEvent || e.Headers.Kind == KindInput }
