package usage

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
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
	tenants map[string]*Tenant
	rest    *Tenant   // Other, for those that have no place among tenants
	leaving []*Tenant // were dropped, and may have been added to at the same moment
	named   int
	other   []uint64
	ranked  time.Time // when labels were given out last
}

// Tenant is what one tenant has taken. Nil counts nothing.
type Tenant struct {
	name   string
	counts []atomic.Uint64
	into   atomic.Pointer[Tenant] // counts in its place once it was dropped

	// Below: guarded by Counters.mu. seen is what of counts is in shown or in other, score what of the first measure came lately.
	seen, shown []uint64
	named       bool
	score       uint64
}

// New returns counters with labels for n tenants; nil where n is 0.
func New(n int, now func() time.Time, measures ...Measure) *Counters {
	if n <= 0 {
		return nil
	}
	c := &Counters{n: n, now: now, tenants: map[string]*Tenant{}, other: make([]uint64, len(measures)), ranked: now()}
	for _, m := range measures {
		c.descs = append(c.descs, prometheus.NewDesc(m.Name, m.Help, []string{"tenant"}, nil))
	}
	c.rest = c.Of(Other)
	return c
}

// Of returns a tenant's counts.
func (c *Counters) Of(tenant string) *Tenant {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tenants[tenant]
	if t == nil && len(c.tenants) > most {
		return c.rest
	}
	if t == nil {
		k := len(c.descs)
		t = &Tenant{name: tenant, counts: make([]atomic.Uint64, k), seen: make([]uint64, k), shown: make([]uint64, k)}
		if c.named < c.n && tenant != Other {
			t.named = true
			c.named++
		}
		c.tenants[tenant] = t
	}
	return t
}

// Add counts n of a measure, by its place among those of New.
func (t *Tenant) Add(measure, n int) {
	if t == nil || n <= 0 {
		return
	}
	if into := t.into.Load(); into != nil {
		t = into
	}
	t.counts[measure].Add(uint64(n))
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
	tenants := slices.SortedFunc(maps.Keys(values), func(a, b string) int { return cmp.Or(cmp.Compare(values[b], values[a]), cmp.Compare(a, b)) })
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
	for _, t := range slices.AppendSeq(c.leaving, maps.Values(c.tenants)) {
		for i := range t.counts {
			count := t.counts[i].Load()
			came := count - t.seen[i]
			t.seen[i] = count
			if t.named {
				t.shown[i] += came
			} else {
				c.other[i] += came
			}
			if i == 0 {
				t.score += came
			}
		}
	}
	c.leaving = nil
	if c.now().Sub(c.ranked) >= window {
		c.rank()
	}
	for _, t := range c.tenants {
		for i, d := range c.descs {
			if t.named {
				ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(t.shown[i]), t.name)
			}
		}
	}
	for i, d := range c.descs {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(c.other[i]), Other)
	}
}

// rank gives labels of those that take little to those that take much more, and drops those that take nothing.
func (c *Counters) rank() {
	c.ranked = c.now()
	var named, rest []*Tenant
	for _, t := range c.tenants {
		switch {
		case t.named:
			named = append(named, t)
		case t.name != Other && t.score > 0:
			rest = append(rest, t)
		}
	}
	byScore := func(a, b *Tenant) int { return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.name, b.name)) }
	slices.SortFunc(named, byScore)
	slices.SortFunc(rest, func(a, b *Tenant) int { return byScore(b, a) })
	for i := 0; i < len(rest) && i < len(named) && float64(rest[i].score) > margin*float64(named[i].score); i++ {
		named[i].named, rest[i].named = false, true
		clear(named[i].shown)
	}
	for name, t := range c.tenants {
		if t.score == 0 && !t.named && t != c.rest {
			t.into.Store(c.rest)
			delete(c.tenants, name)
			c.leaving = append(c.leaving, t)
		}
		t.score /= 2 // what came long ago counts less
	}
}
