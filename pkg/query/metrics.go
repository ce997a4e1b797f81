package query

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/internal/usage"
	"github.com/skeinhq/skein/pkg/quota"
)

// metrics are the stage's metrics. A route label is a pattern; no label has a thread or run id.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	waits    *prometheus.CounterVec
	fresh    *prometheus.HistogramVec // outcome
	restored prometheus.Histogram

	timelineReads *prometheus.CounterVec
	cachedBytes   prometheus.Gauge

	// These are about live streams.
	streams  prometheus.Gauge
	ended    *prometheus.CounterVec // reason
	streamed prometheus.Counter

	tenants *usage.Counters // requests, bytes
}

// These are the outcomes of waiting for the index.
const (
	waitReached = "reached"
	waitLate    = "late"
)

// These are the outcomes of a read of a thread or run.
const (
	readFresh   = "fresh"   // the answer has all events that the log had when the request arrived
	readBehind  = "behind"  // the index did not get to them in time
	readUnknown = "unknown" // Kafka did not say what the index lacks, or reading it took too long
)

// These are the sources of a timeline.
const (
	readFromCache = "cache"
	readFromLog   = "log"
)

func newMetrics(reg prometheus.Registerer, tenants int, routes []front.Route) *metrics {
	auto := promauto.With(reg)
	m := &metrics{
		requests: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_query_requests_total",
			Help: "Answered requests by route and status class.",
		}, []string{"route", "status"}),
		duration: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "skein_query_request_duration_seconds",
			Help:    "Time from a request to the end of its response, including waits for the index.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10},
		}, []string{"route"}),
		waits: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_query_index_waits_total",
			Help: "Calls with atLeast by outcome: reached in time, or late.",
		}, []string{"outcome"}),
		fresh: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skein_query_fresh_read_seconds",
			Help: "Time until a read of a thread or run had all events that the log had when it arrived, by outcome: it had them, the index " +
				"did not get to them in time, or Kafka did not say.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5},
		}, []string{"outcome"}),
		restored: auto.NewHistogram(prometheus.HistogramOpts{
			Name:    "skein_query_restored_chain_runs",
			Help:    "Number of runs whose records one history was restored from.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 8),
		}),
		timelineReads: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_query_timeline_reads_total",
			Help: "Runs that were stepped through, by source of their events: memory, or raw events that were read.",
		}, []string{"source"}),
		cachedBytes: auto.NewGauge(prometheus.GaugeOpts{
			Name: "skein_query_cached_bytes",
			Help: "Memory of the runs that were stepped through, and of the threads with open runs that were read, last.",
		}),
		streams: auto.NewGauge(prometheus.GaugeOpts{Name: "skein_query_streams", Help: "Live streams that are open."}),
		ended: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_query_streams_ended_total",
			Help: "Live streams that ended, by reason: their run ended, nine minutes, a slow reader, a reader that left, an erased thread, " +
				"a stopping process, no memory left for its tenant, ended credentials, a refusal, a failure.",
		}, []string{"reason"}),
		streamed: auto.NewCounter(prometheus.CounterOpts{Name: "skein_query_stream_events_total", Help: "Events sent by live streams."}),
	}
	m.tenants = usage.New(tenants, time.Now,
		usage.Measure{Name: "skein_query_tenant_requests_total", Help: "Requests with valid credentials, of the largest tenants and of all others."},
		usage.Measure{Name: "skein_query_tenant_answer_bytes_total", Help: "Bytes of answers, as sent, of the largest tenants and of all others."})
	for _, r := range routes {
		for _, class := range []string{"2xx", "4xx", "5xx"} {
			m.requests.WithLabelValues(r.Pattern, class)
		}
		if r.Kind != quota.Streams {
			m.duration.WithLabelValues(r.Pattern)
		}
	}
	for _, why := range []string{endRun, endLife, endSlow, endErased, endDrain, endRoom, endRevoked, endLeft, endRefused, endFailed} {
		m.ended.WithLabelValues(why)
	}
	for _, outcome := range []string{readFresh, readBehind, readUnknown} {
		m.fresh.WithLabelValues(outcome)
	}
	m.waits.WithLabelValues(waitReached)
	m.waits.WithLabelValues(waitLate)
	m.timelineReads.WithLabelValues(readFromCache)
	m.timelineReads.WithLabelValues(readFromLog)
	if m.tenants != nil {
		reg.MustRegister(m.tenants)
	}
	return m
}

// done counts a call of the API. It does not observe the duration of a stream, which the reader determines.
func (m *metrics) done(c *front.Call, _ *front.Problem, took time.Duration) {
	if c.Route.Scope == "" {
		return
	}
	m.requests.WithLabelValues(c.Route.Pattern, strconv.Itoa(max(c.Status(), 100)/100)+"xx").Inc()
	if c.Route.Kind != quota.Streams {
		m.duration.WithLabelValues(c.Route.Pattern).Observe(took.Seconds())
	}
}
