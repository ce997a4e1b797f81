package usage

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Other is the label of all tenants that have none of their own. A tenant of this name is one of them.
const Other = "other"

const (
	// window is how long a tenant is measured before it may take another's label.
	window = time.Minute
	// margin is how many times more it must have taken, so that two that take about the same do not change places again and again.
	margin = 1.5
	// most is how many tenants are counted each by itself. Who can write to Kafka can make up any number of names.
	most = 10_000
)

// Measure is one metric: its full name and its help.
type Measure struct{ Name, Help string }

// Counters are one counter a measure and tenant. The first measure says which tenants are the largest. While no more than n tenants
// have come, each has its label from its first count on. Beyond that one that takes more gets the label of one that takes less; its
// counter begins at 0 then, and what it took before is with Other. So no counter ever falls, but for one whose tenant lost its label: it
// is gone. A tenant without a label takes some 150 bytes until it has taken nothing for a while. Of very many at a time some are counted
// with Other only. Nil Counters count nothing.
type Counters struct {
	n     int
	descs []*prometheus.Desc
	now   func() time.Time

	mu      sync.Mutex
	tenants map[string]*counts
	named   int
	other   []uint64
	ranked  time.Time // when labels were given out last
}

// counts are one tenant's.
type counts struct {
	name  string
	shown []uint64 // nil without a label
	score uint64   // what of the first measure came lately
}

// New returns counters with labels for n tenants; nil where n is 0.
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

// Add counts an amount of each measure, in the order of New.
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

// Gauge is one gauge a tenant: the largest n have a label, all others are summed up. A nil Gauge shows nothing.
type Gauge struct {
	n    int
	desc *prometheus.Desc

	mu    sync.Mutex
	shown map[string]float64
}

// NewGauge returns a gauge with labels for n tenants; nil where n is 0.
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

// rank gives labels of those that take little to those that take much more, and drops those that take nothing.
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
		t.score /= 2 // what came long ago counts less
	}
}
