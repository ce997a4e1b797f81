package usage

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Other is the label of all tenants without their own label. A tenant of this name counts here, too.
const Other = "other"

const (
	// window is how long the tenants' use is measured before labels are reassigned.
	window = time.Minute
	// margin is the factor by which a tenant must have used more to take over another's label. It keeps two tenants with
	// similar use from swapping again and again.
	margin = 1.5
	// most limits how many tenants are counted individually, because writers to Kafka can invent any number of names.
	most = 10_000
)

// Measure is the full name and the help text of one metric.
type Measure struct{ Name, Help string }

// Counters has one counter per measure and tenant. The first measure decides which tenants are the largest. The first n
// tenants get a label at once. After that, a tenant with more use takes over the label of one with less. Its counter
// then begins at 0, and its earlier use remains in Other. So a counter never decreases, but disappears if its tenant
// loses the label. A tenant without a label takes about 150 bytes until it has been idle for a while. Tenants beyond
// 10,000 count only in Other. A nil *Counters counts nothing.
type Counters struct {
	n     int
	descs []*prometheus.Desc
	now   func() time.Time

	mu      sync.Mutex
	tenants map[string]*counts
	named   int
	other   []uint64
	ranked  time.Time // when labels were last reassigned
}

// counts are the counters of one tenant.
type counts struct {
	name  string
	shown []uint64 // nil without a label
	score uint64   // recent use by the first measure
}

// New returns counters with labels for n tenants; nil if n is 0.
func New(n int, now func() time.Time, measures ...Measure) *Counters {
	if n <= 0 {
		return nil
	}
	c := &Counters{n: n, now: now, tenants: map[string]*counts{}, other: make([]uint64, len(measures)), ranked: now()}
	for _, m := range measures {
		c.descs = append(c.descs, prometheus.NewDesc(m.Name, m.Help, []string{"tenant"}, nil))
	}
	return c
}

// Add adds an amount to each measure, in the order of New.
func (c *Counters) Add(tenant string, amounts ...int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tenants[tenant]
	if t == nil && tenant != Other && len(c.tenants) < most {
		t = &counts{name: tenant}
		if c.named < c.n {
			t.shown = make([]uint64, len(c.descs))
			c.named++
		}
		c.tenants[tenant] = t
	}
	into := c.other
	if t != nil && t.shown != nil {
		into = t.shown
	}
	for i, n := range amounts {
		into[i] += uint64(max(n, 0))
	}
	if t != nil {
		t.score += uint64(max(amounts[0], 0))
	}
}

// Gauge is one gauge per tenant. The largest n tenants have a label, all others are added up. A nil Gauge shows
// nothing.
type Gauge struct {
	n    int
	desc *prometheus.Desc

	mu    sync.Mutex
	shown map[string]float64
}

// NewGauge returns a gauge with labels for n tenants; nil if n is 0.
func NewGauge(n int, m Measure) *Gauge {
	if n <= 0 {
		return nil
	}
	return &Gauge{n: n, desc: prometheus.NewDesc(m.Name, m.Help, []string{"tenant"}, nil), shown: map[string]float64{Other: 0}}
}

// Set replaces the values of all tenants.
func (g *Gauge) Set(values map[string]float64) {
	if g == nil {
		return
	}
	tenants := slices.SortedFunc(maps.Keys(values),
		func(a, b string) int { return cmp.Or(cmp.Compare(values[b], values[a]), cmp.Compare(a, b)) })
	shown := map[string]float64{Other: values[Other]}
	for _, tenant := range tenants {
		switch {
		case tenant == Other:
		case len(shown) <= g.n:
			shown[tenant] = values[tenant]
		default:
			shown[Other] += values[tenant]
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shown = shown
}

// Describe implements prometheus.Collector.
func (g *Gauge) Describe(ch chan<- *prometheus.Desc) { ch <- g.desc }

// Collect implements prometheus.Collector.
func (g *Gauge) Collect(ch chan<- prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for tenant, value := range g.shown {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, tenant)
	}
}

// Describe implements prometheus.Collector.
func (c *Counters) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Counters) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now().Sub(c.ranked) >= window {
		c.rank()
	}
	for _, t := range c.tenants {
		for i, n := range t.shown {
			ch <- prometheus.MustNewConstMetric(c.descs[i], prometheus.CounterValue, float64(n), t.name)
		}
	}
	for i, d := range c.descs {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(c.other[i]), Other)
	}
}

// rank reassigns labels from tenants with little use to tenants with much more, and drops idle tenants.
func (c *Counters) rank() {
	c.ranked = c.now()
	var named, rest []*counts
	for name, t := range c.tenants {
		switch {
		case t.shown != nil:
			named = append(named, t)
		case t.score > 0:
			rest = append(rest, t)
		default:
			delete(c.tenants, name)
		}
	}
	byScore := func(a, b *counts) int { return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.name, b.name)) }
	slices.SortFunc(named, byScore)
	slices.SortFunc(rest, func(a, b *counts) int { return byScore(b, a) })
	for i := 0; i < len(rest) && i < len(named) && float64(rest[i].score) > margin*float64(named[i].score); i++ {
		named[i].shown, rest[i].shown = nil, make([]uint64, len(c.descs))
	}
	for _, t := range c.tenants {
		t.score /= 2 // older use counts less
	}
}
