package tenant

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/skeinhq/skein/internal/reload"
)

// metrics are the metrics of a KeyFile.
type metrics struct {
	requests *prometheus.CounterVec // outcome
	reloads  *prometheus.CounterVec // outcome
	keys     prometheus.Gauge
	stale    prometheus.Gauge
}

// The outcomes of requests.
const (
	requestKnown   = "known"
	requestUnknown = "unknown"
	requestNone    = "none"
	requestExpired = "expired"
)

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	m := &metrics{
		requests: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_auth_requests_total",
			Help: "Requests by their API key: known, expired, unknown, or none.",
		}, []string{"outcome"}),
		reloads: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_auth_reloads_total",
			Help: "Changes of the key file, by outcome; a refused change has no effect.",
		}, []string{"outcome"}),
		keys: auto.NewGauge(prometheus.GaugeOpts{
			Name: "skein_auth_keys", Help: "API keys in force.",
		}),
		stale: auto.NewGauge(prometheus.GaugeOpts{
			Name: "skein_auth_key_file_stale",
			Help: "1 while the key file is missing or invalid; the previous keys stay in force.",
		}),
	}
	for _, o := range []string{requestKnown, requestUnknown, requestNone, requestExpired} {
		m.requests.WithLabelValues(o)
	}
	for _, o := range reload.Outcomes() {
		m.reloads.WithLabelValues(o)
	}
	return m
}
