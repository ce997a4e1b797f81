package tail

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of a Tail.
type metrics struct {
	partitions, readers, ringBytes prometheus.Gauge
	catchUps, slow                 prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		partitions: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "skein_query_tail_partitions", Help: "Partitions of skein.events that are read for live streams.",
		}),
		readers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "skein_query_tail_readers", Help: "Live streams that follow a thread.",
		}),
		ringBytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "skein_query_tail_ring_bytes", Help: "Bytes of records that are kept for live streams.",
		}),
		catchUps: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skein_query_tail_catch_ups_total", Help: "Live streams that read older records from the log separately.",
		}),
		slow: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skein_query_tail_slow_readers_total", Help: "Live streams that were ended because their reader did not keep up.",
		}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.partitions, m.readers, m.ringBytes, m.catchUps, m.slow} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}
