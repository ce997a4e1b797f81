package usage

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/seedtest"
)

// read returns the counters of a measure by label.
func read(t *testing.T, c *Counters, name string) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			out[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
	}
	return out
}

func TestCounters_NameTheLargestTenants(t *testing.T) {
	now := time.Now()
	c := New(2, func() time.Time { return now }, Measure{"events", "Events."}, Measure{"bytes", "Bytes."})
	add := func(tenant string, n int) {
		c.Add(tenant, n, 10*n)
	}
	check := func(when string, want map[string]float64) {
		t.Helper()
		if got := read(t, c, "events"); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	add(Other, 3) // a tenant of that name takes nobody's label
	add("a", 10)
	add("b", 20)
	add("c", 100)
	check("before a minute", map[string]float64{"a": 10, "b": 20, Other: 103})
	now = now.Add(window)
	check("c is larger than a", map[string]float64{"c": 0, "b": 20, Other: 103})
	add("a", 1)
	add("c", 2)
	check("a is among the others", map[string]float64{"c": 2, "b": 20, Other: 104})
	if bytes := read(t, c, "bytes"); bytes["c"] != 20 || bytes[Other] != 1040 {
		t.Errorf("bytes: %v", bytes)
	}
	add("a", 8) // 14 lately; b 10
	now = now.Add(window)
	check("a is not much larger than b", map[string]float64{"c": 2, "b": 20, Other: 112})
}

// Whatever comes, no counter falls while it is there, and no count is lost or told twice as long as nobody loses a label.
func TestCounters_NeverFall(t *testing.T) {
	seed := seedtest.New(t)
	random := rand.New(rand.NewPCG(seed, 0))
	now := time.Now()
	c := New(3, func() time.Time { return now }, Measure{"events", "Events."})
	before, other := map[string]float64{}, 0.0
	for range 300 {
		for range random.IntN(20) {
			c.Add(fmt.Sprint("t", random.IntN(8)), random.IntN(1000))
		}
		now = now.Add(time.Duration(random.IntN(60)) * time.Second)
		got := read(t, c, "events")
		for label, n := range got {
			if was, ok := before[label]; ok && n < was {
				t.Fatalf("seed %d: %s fell from %v to %v", seed, label, was, n)
			}
		}
		if len(got) > 4 || got[Other] < other {
			t.Fatalf("seed %d: %v", seed, got)
		}
		before, other = got, got[Other]
	}
}

// Names that somebody makes up take no more than so much memory, cost no other tenant its label, and are gone once nothing comes for them.
func TestCounters_AreBounded(t *testing.T) {
	now := time.Now()
	c := New(2, func() time.Time { return now }, Measure{"runs", "Runs."}, Measure{"letters", "Dead letters."})
	c.Add("a", 10)
	c.Add("b", 10)
	for i := range 3 * most {
		c.Add(fmt.Sprint("made-up-", i), 0, 1)
	}
	if n := len(c.tenants); n > most+1 {
		t.Errorf("%d tenants are counted each by itself", n)
	}
	check := func(name string, want map[string]float64) {
		t.Helper()
		if got := read(t, c, name); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	check("letters", map[string]float64{"a": 0, "b": 0, Other: 3 * most})
	now = now.Add(window)
	check("letters", map[string]float64{"a": 0, "b": 0, Other: 3 * most})
	if n := len(c.tenants); n > 3 {
		t.Errorf("%d tenants are left", n)
	}
	c.Add("late", 7)
	check("runs", map[string]float64{"a": 10, "b": 10, Other: 7})
	c.Add("c", 1000) // who comes later still gets a label
	now = now.Add(window)
	check("runs", map[string]float64{"c": 0, "b": 10, Other: 1007})
}

func TestCounters_NilCountsNothing(t *testing.T) {
	New(0, time.Now, Measure{"events", "Events."}).Add("a", 1)
}

func TestGauge_NamesTheLargestTenants(t *testing.T) {
	g := NewGauge(2, Measure{"open", "Open."})
	g.Set(map[string]float64{"a": 1, "b": 5, "c": 3, Other: 10, "d": 2})
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(g)
	check := func(want map[string]float64) {
		t.Helper()
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, m := range families[0].GetMetric() {
			got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
		if !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	check(map[string]float64{"b": 5, "c": 3, Other: 13})
	g.Set(map[string]float64{"a": 1})
	check(map[string]float64{"a": 1, Other: 0})
	NewGauge(0, Measure{"none", "None."}).Set(nil)
}
