package partition

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// deadLetter writes a record unchanged to dead letters. Below the processed offset it writes nothing, as that was done before.
func (l *ledger) deadLetter(m *message, reason, detail string) (fold.Outcome, error) {
	if m.rebuilds {
		return outcomeDeadLetter, nil
	}
	at := record.Position{Partition: l.id, Offset: m.Offset}
	dead := &kgo.Record{
		Topic: l.topics.DeadLetters, Partition: l.id, Key: bytes.Clone(m.Key), Value: bytes.Clone(m.Value),
	}
	size := len(m.Key) + len(m.Value)
	for _, h := range m.Headers {
		if h.Key == record.HeaderWriter { // it says that a newer Skein wrote the record, at which readers stop
			continue
		}
		size += len(h.Key) + len(h.Value)
		dead.Headers = append(dead.Headers, kgo.RecordHeader{Key: h.Key, Value: bytes.Clone(h.Value)})
	}
	// A compressed batch within the limit may contain a record far over it. The dead letter of such a record only names it.
	if size > kafka.MaxBatchBytes-deadLetterRoom {
		dead.Key, dead.Headers = nil, nil
		dead.Value = fmt.Appendf(nil, `{"bytes":%d,"sha256":%q}`, len(m.Value), record.SHA256(m.Value))
	}
	dead.Headers = append(dead.Headers,
		kgo.RecordHeader{Key: record.HeaderReason, Value: []byte(reason)},
		kgo.RecordHeader{Key: record.HeaderPosition, Value: []byte(at.String())})
	if detail != "" {
		dead.Headers = append(dead.Headers, kgo.RecordHeader{Key: record.HeaderDetail, Value: []byte(shorten(detail))})
	}
	l.write(Output{Record: dead})
	l.counts.DeadLetters[reason]++
	return outcomeDeadLetter, nil
}

// deadLetterRoom is the space for the headers of a dead letter and the batch's frame.
const deadLetterRoom = 4 << 10

// shorten cuts a detail to the size of a header, as it may quote what the agent sent.
func shorten(s string) string {
	const most = 512
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
