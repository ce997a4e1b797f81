package ingest

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// recordOverhead is what a record costs in memory beside its value.
const recordOverhead = 512

// writer writes the records of one thread, in order, to its partition, and counts what Kafka acknowledges. A publisher and a spool decide
// which records, and what becomes of one that fails.
//
// Records are not bound to a request's context. The client fails a whole batch, and all that is buffered for its partition, when the
// context of the batch's first record has ended: a caller that hangs up would take the events of others with it.
type writer struct {
	svc    *Service
	target target // its run is that of the first record
	key    []byte
	by     producer
	// stalled is called, with the lock, when Kafka has acknowledged nothing for AckTimeout: a broker that has a record and never answers keeps
	// it from failing by itself.
	stalled func(error)

	mu       sync.Mutex
	out      int // records with the producer
	outBytes int
	progress time.Time   // last acknowledgement, or when the first of those with the producer was given to it
	watchdog *time.Timer // nil while nothing is with the producer
}

func (s *Service) newWriter(t target, by producer, stalled func(error)) writer {
	return writer{svc: s, target: t, key: []byte(t.key), by: by, stalled: stalled}
}

// series are records of one kind and run.
type series struct {
	headers       []kgo.RecordHeader
	events, bytes prometheus.Counter
}

func (w *writer) series(kind record.Kind, run string) series {
	return series{
		headers: kafka.Headers(record.Headers{Version: record.Version, Kind: kind, RunID: run, Seq: -1, Agent: w.by.agent, Labels: w.by.labels}),
		events:  w.svc.metrics.events.WithLabelValues(string(kind)), bytes: w.svc.metrics.bytes.WithLabelValues(string(kind)),
	}
}

// numbered returns the headers of the record with that number; -1 is none.
func (s series) numbered(seq int64) []kgo.RecordHeader {
	if seq < 0 {
		return s.headers
	}
	return append(s.headers[:len(s.headers):len(s.headers)], kgo.RecordHeader{Key: record.HeaderSeq, Value: strconv.AppendInt(nil, seq, 10)})
}

// begin counts a record that the producer is about to get. Call it with the lock, then give.
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

// produce hands a record to a client.
type produce func(context.Context, *kgo.Record, func(*kgo.Record, error))

// give gives a record of a series to the producer. The client calls done, with the lock, in the order in which it got the records, and
// after that what done returns.
func (w *writer) give(ctx context.Context, to produce, of series, headers []kgo.RecordHeader, value []byte,
	done func(*kgo.Record, error) func()) {
	sent := time.Now()
	to(ctx, &kgo.Record{
		Topic: w.svc.topics.Events, Partition: w.target.partition, Key: w.key, Value: value, Headers: headers,
	}, func(r *kgo.Record, err error) {
		size := len(value) + recordOverhead
		w.svc.metrics.inflight.Sub(float64(size))
		if err == nil {
			w.svc.metrics.produce.Observe(time.Since(sent).Seconds())
			of.events.Inc()
			of.bytes.Add(float64(len(value)))
			w.svc.metrics.tenants.Add(w.target.tenant, 1, len(value))
		}
		w.mu.Lock()
		w.out--
		w.outBytes -= size
		w.progress = time.Now()
		then := done(r, err)
		w.mu.Unlock()
		if then != nil {
			then()
		}
	})
}

// watch looks whether Kafka acknowledges.
func (w *writer) watch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.out == 0 {
		w.watchdog = nil // the next record starts it again
		return
	}
	wait := w.svc.cfg.AckTimeout - time.Since(w.progress)
	if wait <= 0 {
		w.stalled(fmt.Errorf("%w: Kafka has acknowledged nothing for %v", ErrUnavailable, w.svc.cfg.AckTimeout))
		wait = w.svc.cfg.AckTimeout
	}
	w.watchdog.Reset(wait)
}

// unwatch ends the watchdog. The lock is held.
func (w *writer) unwatch() {
	if w.watchdog != nil {
		w.watchdog.Stop()
	}
}
