package deadletter

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// Record is what there is to say of a dead letter beside its bytes.
type Record struct {
	// ID is the dead letter's own address, in skein.dead-letters.
	ID record.Position `json:"id"`
	// Position is the address of the record in skein.events that it was made of.
	Position *record.Position `json:"position,omitempty"`
	Reason   string           `json:"reason"`
	// Detail is for people.
	Detail string `json:"detail,omitempty"`
	Chance Chance `json:"chance"`
	// At is when it became a dead letter.
	At time.Time `json:"at"`
	// Tenant and ThreadID are the key's; empty where it cannot be read.
	Tenant   string `json:"tenant,omitempty"`
	ThreadID string `json:"threadId,omitempty"`
	// RunID is that of the headers; empty where they do not say.
	RunID string      `json:"runId,omitempty"`
	Kind  record.Kind `json:"kind"`
	// Bytes is the length of the value.
	Bytes int `json:"bytes"`
	// RetryOf is the dead letter whose retry became this one.
	RetryOf *record.Position `json:"retryOf,omitempty"`
}

// Read reads a record of skein.dead-letters. It has no error: what cannot be read is left empty.
func Read(m *kgo.Record) Record {
	l := Record{
		ID: record.Position{Partition: m.Partition, Offset: m.Offset},
		At: m.Timestamp.UTC(), Bytes: len(m.Value),
	}
	if parts, err := record.SplitKey(string(m.Key)); err == nil && len(parts) == 2 {
		l.Tenant, l.ThreadID = parts[0], parts[1]
	}
	// The error of headers may be what made it a dead letter.
	headers, _ := kafka.ParseHeaders(m.Headers)
	l.Kind, l.RunID = headers.Kind, headers.RunID
	for _, h := range m.Headers { // of a repeated one the last counts: the compactor's stand behind the agent's
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
		l.Chance = ChanceNever // the compactor could not keep the record itself
	case l.Reason == Malformed && agui.CheckDepth(m.Value, agui.MaxEventDepth) != nil:
		l.Chance = ChanceNever // what is not JSON will not become it
	}
	return l
}

// position reads a position; nil is none.
func position(text []byte) *record.Position {
	p, err := record.ParsePosition(string(text))
	if err != nil {
		return nil
	}
	return &p
}

// again returns the record that the compactor made a dead letter of, marked as a retry.
func again(m *kgo.Record, topic string, partition int32) *kgo.Record {
	out := &kgo.Record{Topic: topic, Partition: partition, Key: m.Key, Value: m.Value}
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
