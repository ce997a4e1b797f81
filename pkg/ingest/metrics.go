package ingest

import (
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/internal/usage"
	"github.com/skeinhq/skein/pkg/ingest/agents"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// metrics are the metrics of the stage. A request's outcome is accepted (the whole request), rejected (the caller's
// fault) or unavailable (the fault of Skein or Kafka).
type metrics struct {
	requests *prometheus.CounterVec // call, outcome
	rejected *prometheus.CounterVec // reason
	events   *prometheus.CounterVec // kind
	bytes    *prometheus.CounterVec // kind
	repeats  *prometheus.CounterVec // bytes
	produce  prometheus.Histogram
	inflight prometheus.Gauge
	open     prometheus.Gauge
	memory   prometheus.Collector

	// Metrics of the proxy.
	held    prometheus.Gauge
	runs    *prometheus.CounterVec // outcome
	leftOut *prometheus.CounterVec // reason
	stops   *kafka.VersionStops

	tenants *usage.Counters // events, bytes
}

// The outcomes of proxied runs, besides the codes of the RUN_ERROR events that Skein writes.
const (
	runEnded     = "ended" // the agent ended it
	runCancelled = "cancelled"
)

// The reasons why an agent's event is not on the topic.
const (
	leftOutMalformed = "malformed" // not an event
	leftOutTooLarge  = "too-large"
	leftOutRoom      = "no-room"
	leftOutRefused   = "refused" // Kafka refuses it permanently
)

const (
	outcomeAccepted    = "accepted"
	outcomeRejected    = "rejected"
	outcomeUnavailable = "unavailable"
)

func newMetrics(reg prometheus.Registerer, tenants int, memory *front.Memory) (*metrics, error) {
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "skein", Subsystem: "ingest", Name: name, Help: help}
	}
	m := &metrics{
		stops: new(kafka.VersionStops),
		tenants: usage.New(tenants, time.Now,
			usage.Measure{Name: "skein_ingest_tenant_events_total", Help: "Records that Kafka has acknowledged, of the largest tenants and of all others."},
			usage.Measure{Name: "skein_ingest_tenant_event_bytes_total", Help: "Bytes of acknowledged values, before compression, of the largest tenants and of all others."}),
		requests: prometheus.NewCounterVec(opts("requests_total", "Requests by call and outcome."), []string{"call", "outcome"}),
		rejected: prometheus.NewCounterVec(opts("rejected_total", "Requests that were refused entirely or in part, and refused events of streams, by reason."), []string{"reason"}),
		events:   prometheus.NewCounterVec(opts("events_total", "Records that Kafka has acknowledged, by kind."), []string{"kind"}),
		bytes: prometheus.NewCounterVec(opts("event_bytes_total", "Bytes of acknowledged values, before compression, by kind."),
			[]string{"kind"}),
		repeats: prometheus.NewCounterVec(opts("repeats_total", "Numbered events that callers of the HTTP API sent again, as far as this process remembers: with the same bytes or different ones. Both are dropped."), []string{"bytes"}),
		produce: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "skein", Subsystem: "ingest", Name: "produce_seconds",
			Help:    "Time from handing a record to the producer to its acknowledgement.",
			Buckets: []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}}),
		inflight: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "skein", Subsystem: "ingest", Name: "unacknowledged_bytes",
			Help: "Bytes of records that are not acknowledged."}),
		open: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "skein", Subsystem: "ingest", Name: "ready",
			Help: "1 if the partition counts are known and unchanged, else 0: every request is answered with 503."}),
		held: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "skein", Subsystem: "ingest", Name: "proxied_runs",
			Help: "Runs in the proxy: under way, or with events that are not acknowledged."}),
		memory: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "skein", Subsystem: "ingest", Name: "memory_bytes",
			Help: "Bytes of --memory in use by requests and proxied runs, including events that are not acknowledged."},
			func() float64 { return float64(memory.Held()) }),
		runs:    prometheus.NewCounterVec(opts("proxied_runs_total", "Runs whose agent's stream is over, by how it ended: ended by the agent, cancelled, or the code of the RUN_ERROR that was written."), []string{"outcome"}),
		leftOut: prometheus.NewCounterVec(opts("proxied_events_left_out_total", "Events of agents that were sent to the caller but not to Kafka, by reason."), []string{"reason"}),
	}
	for _, o := range append([]string{runEnded, runCancelled, codeNotRecorded, codeStopping, codeRevoked}, agents.Codes()...) {
		m.runs.WithLabelValues(o)
	}
	for _, r := range []string{leftOutMalformed, leftOutTooLarge, leftOutRoom, leftOutRefused} {
		m.leftOut.WithLabelValues(r)
	}
	for _, b := range []string{"same", "different"} {
		m.repeats.WithLabelValues(b)
	}
	for _, r := range Routes() {
		for _, o := range []string{outcomeAccepted, outcomeRejected, outcomeUnavailable} {
			m.requests.WithLabelValues(r.Action, o)
		}
	}
	for _, r := range reasons() {
		m.rejected.WithLabelValues(r)
	}
	for _, k := range []record.Kind{
		record.KindEvent, record.KindInput, record.KindErase, record.KindCancel, record.KindClaim, record.KindThread,
	} {
		m.events.WithLabelValues(string(k))
		m.bytes.WithLabelValues(string(k))
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.requests, m.rejected, m.events, m.bytes, m.repeats, m.produce, m.inflight, m.open, m.held,
		m.memory, m.runs, m.leftOut, m.stops.Gauge("ingest")} {
		errs = append(errs, reg.Register(c))
	}
	if m.tenants != nil {
		errs = append(errs, reg.Register(m.tenants))
	}
	return m, errors.Join(errs...)
}

// done counts a request. The argument p is the problem of its response; nil after a success.
func (m *metrics) done(call string, p *front.Problem) {
	outcome := outcomeAccepted
	switch {
	case p == nil:
	case p.Status == http.StatusServiceUnavailable:
		outcome = outcomeUnavailable
	default:
		outcome = outcomeRejected
	}
	m.requests.WithLabelValues(call, outcome).Inc()
	if p != nil && p.Reason != "" {
		m.rejected.WithLabelValues(p.Reason).Inc()
	}
}
