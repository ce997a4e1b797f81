package deadletter

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

// Record is a dead letter without its value.
type Record struct {
	// ID is the dead letter's partition and offset in skein.dead-letters.
	ID record.Position `json:"id"`
	// Position is the position in skein.events of the original record, or for Refused of the run's first event.
	Position *record.Position `json:"position,omitempty"`
	Reason   string           `json:"reason"`
	// Detail is for people.
	Detail string `json:"detail,omitempty"`
	Chance Chance `json:"chance"`
	// At is the timestamp of the dead letter.
	At time.Time `json:"at"`
	// Tenant and ThreadID come from the key; empty if the key cannot be parsed.
	Tenant   string `json:"tenant,omitempty"`
	ThreadID string `json:"threadId,omitempty"`
	// RunID comes from the headers; empty if they contain none.
	RunID string      `json:"runId,omitempty"`
	Kind  record.Kind `json:"kind"`
	// Bytes is the length of the value.
	Bytes int `json:"bytes"`
	// RetryOf is an earlier dead letter whose retry has failed and become this one.
	RetryOf *record.Position `json:"retryOf,omitempty"`
}

// Read parses a record of skein.dead-letters. Members that cannot be parsed stay empty.
func Read(m *kgo.Record) Record {
	l := Record{
		ID: record.Position{Partition: m.Partition, Offset: m.Offset},
		At: m.Timestamp.UTC(), Bytes: len(m.Value),
	}
	if parts, err := record.SplitKey(string(m.Key)); err == nil && len(parts) == 2 {
		l.Tenant, l.ThreadID = parts[0], parts[1]
	}
	// Invalid headers may be the reason of the dead letter.
	headers, _ := record.ParseHeaders(m.Headers)
	l.Kind, l.RunID = headers.Kind, headers.RunID
	for _, h := range m.Headers { // the last of equal names counts, because the compactor appends its headers to the producer's
		switch h.Key {
		case record.HeaderReason:
			l.Reason = string(h.Value)
		case record.HeaderDetail:
			l.Detail = string(h.Value)
		case record.HeaderPosition:
			l.Position = position(h.Value)
		case record.HeaderRetryOf:
			l.RetryOf = position(h.Value)
		}
	}
	l.Chance = ChanceOf(l.Reason)
	switch {
	case l.Tenant == "" || l.Position == nil:
		l.Chance = ChanceNever // the compactor could not keep the original record
	case l.Reason == Malformed && agui.CheckDepth(m.Value, agui.MaxEventDepth) != nil:
		l.Chance = ChanceNever // the value is not JSON or too deep
	}
	return l
}

// position parses a position; nil if it is invalid.
func position(text []byte) *record.Position {
	p, err := record.ParsePosition(string(text))
	if err != nil {
		return nil
	}
	return &p
}

// again returns the original record marked as a retry. The caller sets its partition.
func again(m *kgo.Record, topic string) *kgo.Record {
	out := &kgo.Record{Topic: topic, Key: m.Key, Value: m.Value}
	for _, h := range m.Headers {
		switch h.Key {
		case record.HeaderReason, record.HeaderDetail, record.HeaderPosition, record.HeaderRetryOf, record.HeaderCopiedFrom:
		default:
			out.Headers = append(out.Headers, h)
		}
	}
	id := record.Position{Partition: m.Partition, Offset: m.Offset}
	out.Headers = append(out.Headers, kgo.RecordHeader{Key: record.HeaderRetryOf, Value: []byte(id.String())})
	return out
}
