package indexer

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/skeinhq/skein/pkg/kafka"
)

// metrics are the metrics of the stage.
type metrics struct {
	records       *prometheus.CounterVec
	refused       prometheus.Counter
	expired       prometheus.Counter
	blockRecords  prometheus.Histogram
	blockBytes    prometheus.Histogram
	writeDuration prometheus.Histogram
	age           prometheus.Histogram
	lag           *kafka.Lag
	stops         *kafka.VersionStops
	partitions    prometheus.Gauge
	writeErrors   prometheus.Counter
	commitErrors  prometheus.Counter
	fetchErrors   prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	m := &metrics{
		records: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_indexer_records_total",
			Help: "Records of skein.runs that were read, by outcome.",
		}, []string{"outcome"}),
		refused: auto.NewCounter(prometheus.CounterOpts{
			Name: "skein_indexer_refused_total", Help: "Runs that the store refused and that became dead letters.",
		}),
		expired: auto.NewCounter(prometheus.CounterOpts{
			Name: "skein_indexer_expired_threads_total", Help: "Threads deleted from the store because their tenant's retention was over.",
		}),
		blockRecords: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "skein_indexer_block_records", Help: "Entries in one block.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 8),
		}),
		blockBytes: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "skein_indexer_block_bytes", Help: "Bytes of records in one block.",
			Buckets: prometheus.ExponentialBuckets(1024, 8, 7),
		}),
		writeDuration: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "skein_indexer_write_duration_seconds", Help: "Time until the store made a block durable.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
		}),
		age: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "skein_indexer_record_age_seconds", Help: "Age of a record when its row was durable.",
			Buckets: []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200},
		}),
		lag:   kafka.NewLag(time.Now),
		stops: new(kafka.VersionStops),
		partitions: auto.NewGauge(prometheus.GaugeOpts{
			Name: "skein_indexer_partitions", Help: "Partitions assigned to this process.",
		}),
		writeErrors: auto.NewCounter(prometheus.CounterOpts{
			Name: "skein_indexer_write_errors_total", Help: "Writes of a block that failed; each is retried.",
		}),
		commitErrors: auto.NewCounter(prometheus.CounterOpts{
			Name: "skein_indexer_commit_errors_total", Help: "Offset commits that failed; a later commit covers them.",
		}),
		fetchErrors: auto.NewCounter(prometheus.CounterOpts{
			Name: "skein_indexer_fetch_errors_total", Help: "Errors of fetches and of the group.",
		}),
	}
	for _, o := range outcomes {
		m.records.WithLabelValues(string(o))
	}
	reg.MustRegister(m.stops.Gauge("indexer"))
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "skein_indexer_lag_seconds",
		Help: "Age of the oldest record that was read and whose row is not durable, or that is on a stalled partition; 0 if there is none.",
	}, m.lag.Seconds)
	return m
}
