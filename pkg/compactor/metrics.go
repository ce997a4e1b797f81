package compactor

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/usage"
	"github.com/skeinhq/skein/pkg/compactor/partition"
	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/deadletter"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// kindFence is the output kind of fences, which no partition makes.
const kindFence = "fence"

// metrics are the stage's metrics. The process that committed an event or run counts it once; a crash between commit
// and count loses the count.
type metrics struct {
	events      *prometheus.CounterVec // outcome
	deadLetters *prometheus.CounterVec // reason
	runs        *prometheus.CounterVec // status
	// kind: sealed, checkpoint, abandoned, fence, progress, snapshot, oversize, tombstone, erasure, over-quota
	records       *prometheus.CounterVec
	recordBytes   prometheus.Counter
	eventBytes    prometheus.Counter
	transactions  *prometheus.CounterVec // outcome
	commitSeconds prometheus.Histogram
	openSeconds   prometheus.Histogram
	openRuns      prometheus.Gauge
	openRunBytes  prometheus.Gauge
	oldestRun     atomic.Pointer[time.Time] // when the oldest open run began; nil or zero: none
	cutRuns       prometheus.Counter
	partitions    *prometheus.GaugeVec // state: open, opening
	lag           *kafka.Lag
	stops         *kafka.VersionStops
	catchUp       prometheus.Counter
	catchUpBytes  prometheus.Counter
	// catchUpLeft counts offsets; catchUpLeftSeconds estimates the time at the pace so far. Both are 0 once all is read.
	catchUpLeft        prometheus.Gauge
	catchUpLeftSeconds prometheus.Gauge
	lostOffsets        prometheus.Counter
	rebuilds           *prometheus.CounterVec // reason
	storeReads         *prometheus.CounterVec // what
	storeReadBytes     *prometheus.CounterVec // what
	sessions           prometheus.Counter
	anomalies          *prometheus.CounterVec // rule

	tenants                            *usage.Counters
	tenantOpenRuns, tenantOpenRunBytes *usage.Gauge
}

// nameTenants adds metrics of the n largest tenants, and of all others together.
func (m *metrics) nameTenants(reg prometheus.Registerer, n int) {
	m.tenants = usage.New(n, time.Now,
		usage.Measure{Name: "skein_compactor_tenant_runs_total", Help: "Runs whose final record was committed, of the largest tenants and of all others."},
		usage.Measure{Name: "skein_compactor_tenant_dead_letters_total", Help: "Records sent to dead letters whose key names a tenant, of the largest tenants and of all others."})
	m.tenantOpenRuns = usage.NewGauge(n, usage.Measure{Name: "skein_compactor_tenant_open_runs", Help: "Open and expired runs, as the quota open_runs counts them, of the largest tenants and of all others."})
	m.tenantOpenRunBytes = usage.NewGauge(n, usage.Measure{Name: "skein_compactor_tenant_open_run_bytes", Help: "Memory of open runs, of the largest tenants and of all others."})
	reg.MustRegister(m.tenants, m.tenantOpenRuns, m.tenantOpenRunBytes)
}

// countTenant counts an output for the tenant in its key.
func (m *metrics) countTenant(o partition.Output) {
	runs, letters := 1, 0
	switch {
	case m.tenants == nil:
		return
	case o.Kind == "":
		runs, letters = 0, 1
	case !o.IsFinal():
		return
	}
	if parts, err := record.SplitKey(string(o.Record.Key)); err == nil {
		m.tenants.Add(parts[0], runs, letters)
	}
}

// newMetrics registers the metrics. The argument tenants is how many of the largest tenants get metrics of their own.
func newMetrics(reg prometheus.Registerer, tenants int) *metrics {
	const ns, sub = "skein", "compactor"
	vec := func(name, help string, label string, values ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Subsystem: sub, Name: name, Help: help}, []string{label})
		for _, value := range values {
			v.WithLabelValues(value)
		}
		reg.MustRegister(v)
		return v
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: ns, Subsystem: sub, Name: name, Help: help})
		reg.MustRegister(c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: ns, Subsystem: sub, Name: name, Help: help})
		reg.MustRegister(g)
		return g
	}
	seconds := func(name, help string, buckets ...float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: ns, Subsystem: sub, Name: name, Help: help, Buckets: buckets})
		reg.MustRegister(h)
		return h
	}
	parts := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: ns, Subsystem: sub, Name: "partitions",
		Help: "Assigned partitions by state."}, []string{"state"})
	reg.MustRegister(parts)
	parts.WithLabelValues("open")
	parts.WithLabelValues("opening")
	lag := kafka.NewLag(time.Now)
	stops := new(kafka.VersionStops)
	reg.MustRegister(stops.Gauge(sub))
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: ns, Subsystem: sub, Name: "lag_seconds",
		Help: "Age of the oldest event that was read and is not committed, or is on a stalled partition; for a partition that is being opened, the time since its assignment; 0 if there is none. The scaling signal.",
	}, lag.Seconds))
	m := &metrics{
		events:      vec("events_total", "Records of skein.events by outcome.", "outcome", partition.Outcomes()...),
		deadLetters: vec("dead_letters_total", "Records sent to dead letters by reason.", "reason", deadletter.Reasons()...),
		runs: vec("runs_total", "Runs that ended by status.", "status", "finished", "error", "interrupted", "cancelled",
			"abandoned"),
		records: vec("records_total", "Committed records of derived topics by kind.", "kind",
			append(partition.OutputKinds(), kindFence)...),
		recordBytes:   counter("record_bytes_total", "Committed bytes of derived topics, before compression."),
		eventBytes:    counter("event_bytes_total", "Bytes of skein.events read, before compression."),
		transactions:  vec("transactions_total", "Transactions by outcome: committed; aborted, because a record was not acknowledged; unknown, if a rebalance or a broker aborted it or the client does not know; error, after which a new session starts. All but committed ones are repeated.", "outcome", string(cycleCommitted), string(cycleAborted), string(cycleUnknown), string(cycleFailed)),
		commitSeconds: seconds("commit_duration_seconds", "Time that the end of a transaction takes, with what is not sent before.", .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10),
		openSeconds: seconds("partition_open_duration_seconds", "Time from a partition's assignment to its first event.", .05, .1, .25, .5,
			1, 2.5, 5, 10, 30, 60, 300),
		openRuns:           gauge("open_runs", "Runs that have not ended, in memory or checkpointed."),
		openRunBytes:       gauge("open_run_bytes", "Memory of open runs: about the size of their last records and the events since, plus 5 KiB per run and 0.5 KiB per message."),
		cutRuns:            counter("cut_runs_total", "Open runs whose largest contents were replaced by references: the run, or open runs together, exceeded a limit."),
		partitions:         parts,
		lag:                lag,
		stops:              stops,
		catchUp:            counter("catch_up_records_total", "Records of skein.runs read to bring local stores up to date."),
		catchUpBytes:       counter("catch_up_bytes_total", "Bytes of skein.runs read to bring local stores up to date, before compression."),
		catchUpLeft:        gauge("catch_up_remaining_offsets", "Offsets of skein.runs that opening local stores still have to read."),
		catchUpLeftSeconds: gauge("catch_up_remaining_seconds", "Estimated time until the last partition that is catching up is open, at the pace so far."),
		lostOffsets:        counter("lost_offsets_total", "Offsets of skein.events that were gone before they were read."),
		rebuilds: vec("store_rebuilds_total", "Local stores that were discarded and rebuilt, by reason.", "reason",
			runstore.RebuildReasons()...),
		storeReads:     vec("store_reads_total", "Reads of local stores: the start of a thread that was not in memory, a run's metadata or its location, or the record of one run.", "what", runstore.ReadKinds()...),
		storeReadBytes: vec("store_read_bytes_total", "Bytes read from local stores.", "what", runstore.ReadKinds()...),
		sessions:       counter("sessions_total", "Group sessions started."),
		anomalies:      vec("anomalies_total", "Irregular events by rule, except those that the fold counts.", "rule", partition.AnomalyRules()...),
	}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: ns, Subsystem: sub, Name: "oldest_open_run_seconds",
		Help: "Age of the oldest open run; 0 if there is none. That of a run which another process began counts from its last event before it was taken over.",
	}, func() float64 {
		if at := m.oldestRun.Load(); at != nil && !at.IsZero() {
			return max(0, time.Since(*at).Seconds())
		}
		return 0
	}))
	if tenants > 0 {
		m.nameTenants(reg, tenants)
	}
	return m
}

// registerDisk adds metrics of the disk that the local stores are on.
func registerDisk(reg prometheus.Registerer, dir string) {
	gauge := func(name, help string, value func() float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "skein", Subsystem: "compactor", Name: name, Help: help}, value))
	}
	gauge("disk_free_bytes", "Bytes that are free on the disk of the local stores.", func() float64 {
		free, _ := runstore.DiskUsage(dir)
		return free
	})
	gauge("disk_size_bytes", "Size of the disk of the local stores.", func() float64 {
		_, size := runstore.DiskUsage(dir)
		return size
	})
}
