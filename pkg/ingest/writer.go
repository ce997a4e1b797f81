package ingest

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// recordOverhead is the memory of a record besides its value, in bytes.
const recordOverhead = 512

// writer writes the records of a thread in order to the thread's partition and counts unacknowledged records. A
// publisher or a spool decides which records to write and what to do if one fails.
//
// Records do not use a request's context. If the context of a batch's first record ends, the client fails the batch and
// all records that it buffers for the partition, so a caller that disconnects would fail the events of others.
type writer struct {
	svc    *Service
	target target // with the run of the first record
	key    []byte
	by     producer
	// stalled is called with the lock held when Kafka has acknowledged nothing for AckTimeout. It is needed because kgo
	// never fails a record that a broker received and did not answer.
	stalled func(error)

	mu       sync.Mutex
	acks     int                          // acknowledged records
	traced   func(records int, err error) // ends the span of the records
	out      int                          // records that the producer has
	outBytes int
	progress time.Time   // time of the last result, or of a later send while no record was out
	watchdog *time.Timer // nil while the producer has no record
}

func (s *Service) newWriter(t target, by producer, stalled func(error)) writer {
	return writer{svc: s, target: t, key: []byte(t.key), by: by, stalled: stalled,
		traced: s.cfg.Tracer.Produce(by.traceparent, s.topics.Events)}
}

// series has the headers and counters that all records of one kind and run share.
type series struct {
	headers       []kgo.RecordHeader
	events, bytes prometheus.Counter
}

func (w *writer) series(kind record.Kind, run string) *series {
	return &series{
		headers: kafka.Headers(record.Headers{Version: record.Version, Kind: kind, RunID: run, Seq: -1,
			Agent: w.by.agent, Labels: w.by.labels, Traceparent: w.by.traceparent}),
		events: w.svc.metrics.events.WithLabelValues(string(kind)), bytes: w.svc.metrics.bytes.WithLabelValues(string(kind)),
	}
}

// numbered returns the headers of the record with the number seq; -1 means no number.
func (s *series) numbered(seq int64) []kgo.RecordHeader {
	if seq < 0 {
		return s.headers
	}
	return append(s.headers[:len(s.headers):len(s.headers)], kgo.RecordHeader{Key: record.HeaderSeq, Value: strconv.AppendInt(nil, seq, 10)})
}

// begin counts a record before it is sent to the producer. Call it with the lock held, then send it, and call result.
func (w *writer) begin(value []byte) {
	size := len(value) + recordOverhead
	if w.out == 0 {
		w.progress = time.Now()
	}
	w.out++
	w.outBytes += size
	w.svc.metrics.inflight.Add(float64(size))
	if w.watchdog == nil {
		w.watchdog = time.AfterFunc(w.svc.cfg.AckTimeout, w.watch)
	}
}

// record returns a record for the producer, signed if the stage has keys, sent now; its result is for the function result.
func (w *writer) record(headers []kgo.RecordHeader, value []byte) *kgo.Record {
	m := &kgo.Record{
		Topic: w.svc.topics.Events, Partition: w.target.partition, Key: w.key, Value: value, Headers: headers,
		Timestamp: time.Now(), // kgo would read the clock once more
	}
	w.svc.cfg.Kafka.IngestKeys.Sign(m)
	return m
}

// result handles the result of a record that was sent to the producer at the time sent. It calls done with the lock
// held, in the order in which the records were sent, and then, without the lock, the function that done returned.
func (w *writer) result(r *kgo.Record, of *series, sent time.Time, err error, done func() func()) {
	size, now := len(r.Value)+recordOverhead, time.Now()
	w.svc.metrics.inflight.Sub(float64(size))
	if err == nil {
		w.svc.metrics.produce.Observe(now.Sub(sent).Seconds())
		of.events.Inc()
		of.bytes.Add(float64(len(r.Value)))
		w.svc.metrics.tenants.Add(w.target.tenant, 1, len(r.Value))
	}
	w.mu.Lock()
	w.out--
	w.outBytes -= size
	w.progress = now
	if err == nil {
		w.acks++
	}
	then := done()
	w.mu.Unlock()
	if then != nil {
		then()
	}
}

// watch calls stalled if Kafka has acknowledged nothing for AckTimeout.
func (w *writer) watch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.out == 0 {
		w.watchdog = nil // begin starts it again
		return
	}
	wait := w.svc.cfg.AckTimeout - time.Since(w.progress)
	if wait <= 0 {
		w.stalled(fmt.Errorf("%w: Kafka has acknowledged nothing for %v", ErrUnavailable, w.svc.cfg.AckTimeout))
		wait = w.svc.cfg.AckTimeout
	}
	w.watchdog.Reset(wait)
}

// unwatch stops the watchdog. The caller must hold the lock.
func (w *writer) unwatch() {
	if w.watchdog != nil {
		w.watchdog.Stop()
	}
}
