package quota

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/skeinhq/skein/internal/reload"
)

type metrics struct {
	refused *prometheus.CounterVec // limit
	reloads *prometheus.CounterVec // outcome
	stale   prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	m := &metrics{
		refused: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_quota_refused_total",
			Help: "Requests and events that were refused because a tenant's quota was used up, by limit.",
		}, []string{"limit"}),
		reloads: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_quota_reloads_total",
			Help: "Changes of the quota file, by outcome; a refused change has no effect.",
		}, []string{"outcome"}),
		stale: auto.NewGauge(prometheus.GaugeOpts{
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
	return m
}
