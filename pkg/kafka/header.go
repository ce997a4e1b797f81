package kafka

import (
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

// OfRun reports whether a record of skein.events may be of a run, and returns its headers: an event or
// an input that the compactor takes.
func OfRun(m *kgo.Record) (record.Headers, bool) { return OfRunLike(m, record.Headers{}) }

// OfRunLike is OfRun for a record that is likely to say the same as another; see record.ParseHeadersLike.
func OfRunLike(m *kgo.Record, like record.Headers) (record.Headers, bool) {
	headers, err := ParseHeadersLike(m.Headers, like)
	taken := err == nil && len(m.Value) <= MaxValueBytes && (headers.Kind == record.KindEvent || headers.Kind == record.KindInput)
	return headers, taken
}
