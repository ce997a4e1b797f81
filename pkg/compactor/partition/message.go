package partition

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/record"
)

// message is one record of skein.events on its way through a partition.
type message struct {
	*kgo.Record
	headers record.Headers
	// rebuilds means that the record lies below the processed offset, so it only rebuilds runs.
	rebuilds bool
	now      time.Time
}

// event returns the record in the form that package fold takes.
func (m *message) event() record.Event {
	return record.Event{Partition: m.Partition, Offset: m.Offset, Time: m.Timestamp, Key: m.Key, Headers: m.headers, Value: m.Value}
}
