package tail

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are those of a Tail.
type metrics struct {
	partitions, readers, ringBytes prometheus.Gauge
	catchUps, slow                 prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	return &metrics{
		partitions: auto.NewGauge(prometheus.GaugeOpts{
			Name: "skein_query_tail_partitions", Help: "Partitions of skein.events that are read for live streams.",
		}),
		readers: auto.NewGauge(prometheus.GaugeOpts{
			Name: "skein_query_tail_readers", Help: "Live streams that follow a thread.",
		}),
		ringBytes: auto.NewGauge(prometheus.GaugeOpts{
			Name: "skein_query_tail_ring_bytes", Help: "Bytes of records that are kept for live streams.",
		}),
		catchUps: auto.NewCounter(prometheus.CounterOpts{
			Name: "skein_query_tail_catch_ups_total", Help: "Live streams that read older records from the log separately.",
		}),
		slow: auto.NewCounter(prometheus.CounterOpts{
			Name: "skein_query_tail_slow_readers_total", Help: "Live streams that were ended because their reader did not keep up.",
		}),
	}
}
