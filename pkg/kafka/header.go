package kafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/record"
)

// Headers encodes the headers of a record for kgo.
func Headers(h record.Headers) []kgo.RecordHeader {
	encoded := h.Encode()
	out := make([]kgo.RecordHeader, len(encoded))
	for i, h := range encoded {
		out[i] = kgo.RecordHeader(h)
	}
	return out
}

// Event parses a record of skein.events and checks its signature by the keys, which may be nil. The argument like is that of
// record.ParseHeadersLike. record.ErrUnknownVersion must stop the reader; record.ErrInvalidHeader, which a record of a newer version has
// if its signature is wrong, and record.ErrUnknownKind concern only this record. The event shares the record's bytes.
func Event(m *kgo.Record, like *record.Headers, keys *IngestKeys) (record.Event, error) {
	headers, err := record.ParseHeadersLike(m.Headers, like)
	e := record.Event{Partition: m.Partition, Offset: m.Offset, Time: m.Timestamp, Key: m.Key, Headers: headers, Value: m.Value,
		Signature: keys.Signature(m)}
	if errors.Is(err, record.ErrUnknownVersion) && e.Signature == record.SignatureWrong {
		err = record.ErrInvalidHeader
	}
	return e, err
}

// RunEvent is Event for readers that repeat the compactor's fold. The result ok is false for records that the compactor does not fold
// into a run. The error is record.ErrUnknownVersion.
func RunEvent(m *kgo.Record, like *record.Headers, keys *IngestKeys) (e record.Event, ok bool, err error) {
	e, err = Event(m, like, keys)
	if errors.Is(err, record.ErrUnknownVersion) {
		return e, false, fmt.Errorf("reading record %s: %w", e.Position(), err)
	}
	return e, err == nil && e.OfRun() && len(m.Value) <= MaxValueBytes, nil
}
