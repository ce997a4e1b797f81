package partition

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/record"
)

// message is one record of skein.events on its way through a partition.
type message struct {
	*kgo.Record
	// event is the record in the form that package fold takes, and unread why its headers could not be read.
	event  record.Event
	unread error
	// rebuilds means that the record lies below the processed offset, so it only rebuilds runs.
	rebuilds bool
	now      time.Time
}

var noHeaders record.Headers

// read sets m to the next record. t is its thread, if that is in memory: the headers of its records are mostly the same.
func (m *message) read(r *kgo.Record, t *thread) {
	like := &noHeaders
	if t != nil {
		like = &t.headers
	}
	m.Record = r
	m.event.Partition, m.event.Offset, m.event.Time, m.event.Key, m.event.Value = r.Partition, r.Offset, r.Timestamp, r.Key, r.Value
	m.event.Headers, m.unread = record.ParseHeadersLike(r.Headers, like)
}
