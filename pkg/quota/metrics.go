package quota

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/reload"
)

type metrics struct {
	refused *prometheus.CounterVec // limit
	reloads *prometheus.CounterVec // outcome
	stale   prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_quota_refused_total",
			Help: "Requests and events that were refused because a tenant's quota was used up, by limit.",
		}, []string{"limit"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_quota_reloads_total",
			Help: "Changes of the quota file, by outcome; a refused change has no effect.",
		}, []string{"outcome"}),
		stale: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "skein_quota_file_stale",
			Help: "1 while the quota file is missing or invalid; the previous quotas stay in force.",
		}),
	}
	for _, n := range names {
		m.refused.WithLabelValues(n)
	}
	for _, o := range reload.Outcomes() {
		m.reloads.WithLabelValues(o)
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.refused, m.reloads, m.stale} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}
