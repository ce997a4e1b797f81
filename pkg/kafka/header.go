package kafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/record"
)

// Headers returns the headers as they go into a record.
func Headers(h record.Headers) []kgo.RecordHeader { return ToRecordHeaders(h.Encode()) }

// ParseHeaders reads the headers of a record; see record.ParseHeaders.
func ParseHeaders(hs []kgo.RecordHeader) (record.Headers, error) {
	return record.ParseHeaders(hs)
}

// ParseHeadersLike reads the headers of a record; see record.ParseHeadersLike.
func ParseHeadersLike(hs []kgo.RecordHeader, like record.Headers) (record.Headers, error) {
	return record.ParseHeadersLike(hs, like)
}

// ToRecordHeaders converts headers to the client's type. Values are shared.
func ToRecordHeaders(hs []record.Header) []kgo.RecordHeader {
	out := make([]kgo.RecordHeader, len(hs))
	for i, h := range hs {
		out[i] = kgo.RecordHeader(h)
	}
	return out
}

// Event reads a record of skein.events; like is what record.ParseHeadersLike takes. The error is a *record.VersionError, which
// must stop whoever reads, or one of record.ErrInvalidHeader and record.ErrUnknownKind, which cost the record. The event shares the record's bytes.
func Event(m *kgo.Record, like record.Headers) (record.Event, error) {
	headers, err := ParseHeadersLike(m.Headers, like)
	return record.Event{Partition: m.Partition, Offset: m.Offset, Time: m.Timestamp, Key: m.Key, Headers: headers, Value: m.Value}, err
}

// RunEvent is Event for those that fold runs again: ok reports whether the record is an event or an input that the compactor takes,
// and not one that it has put aside. The error is a *record.VersionError.
func RunEvent(m *kgo.Record, like record.Headers) (e record.Event, ok bool, err error) {
	e, err = Event(m, like)
	if errors.Is(err, record.ErrUnknownVersion) {
		return e, false, fmt.Errorf("reading record %s: %w", e.Position(), err)
	}
	return e, err == nil && e.OfRun() && len(m.Value) <= MaxValueBytes, nil
}
