package docs

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/admin"
	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/internal/usage"
	"github.com/skeinhq/skein/pkg/compactor"
	"github.com/skeinhq/skein/pkg/indexer"
	"github.com/skeinhq/skein/pkg/ingest"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/query"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/tenant"
)

var update = flag.Bool("update", false, "rewrite what is made from the code in documents")

// metric is what a registry was given.
type metric struct {
	name, kind, help string
	labels           []string
	// values are those that a label has from the start.
	values map[string][]string
	// tenants: the label tenant has a bounded number of values.
	tenants bool
}

// ledger is a registry that remembers what it was given: a registry itself tells no type of a metric
// that nobody has touched.
type ledger struct {
	*prometheus.Registry
	t       *testing.T
	metrics map[string]*metric
}

var description = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "(.*)", unit: "[^"]*", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// Register implements prometheus.Registerer.
func (l *ledger) Register(c prometheus.Collector) error {
	if err := l.Registry.Register(c); err != nil {
		return err
	}
	var kind string
	switch c.(type) {
	case *prometheus.CounterVec, *prometheus.HistogramVec, *prometheus.GaugeVec:
		kind = strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", c), "*prometheus."), "Vec"))
	case prometheus.Histogram:
		kind = "histogram"
	case prometheus.Gauge:
		kind = "gauge"
	case prometheus.Counter:
		kind = "counter"
	case *usage.Counters: // which bound their label tenant
		kind = "counter"
	case *usage.Gauge: // as well
		kind = "gauge"
	case prometheus.GaugeFunc: // the same methods as a CounterFunc: Kafka's clients have gauges only
		kind = "gauge"
	default:
		l.t.Errorf("a collector of type %T", c)
	}
	descs := make(chan *prometheus.Desc, 10)
	c.Describe(descs)
	close(descs)
	for d := range descs {
		parts := description.FindStringSubmatch(d.String())
		if parts == nil {
			l.t.Fatalf("a description is %s", d)
		}
		m := &metric{name: parts[1], kind: kind, help: parts[2], values: map[string][]string{}}
		for _, pair := range strings.Split(parts[3], ",") {
			if name, _, ok := strings.Cut(pair, "="); ok {
				m.labels = append(m.labels, name)
			}
		}
		for _, name := range strings.Split(parts[4], ",") {
			if name != "" {
				m.labels = append(m.labels, name)
			}
		}
		switch c.(type) {
		case *usage.Counters, *usage.Gauge:
			m.tenants = true
		}
		l.metrics[m.name] = m
	}
	return nil
}

// MustRegister implements prometheus.Registerer.
func (l *ledger) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := l.Register(c); err != nil {
			l.t.Fatal(err)
		}
	}
}

// stages registers the metrics of all stages. No Kafka is needed: clients connect later.
func stages(t *testing.T) map[string]*metric {
	t.Helper()
	l := &ledger{Registry: prometheus.NewPedanticRegistry(), t: t, metrics: map[string]*metric{}}
	logger := slog.New(slog.DiscardHandler)
	k := kafka.Config{Brokers: []string{"127.0.0.1:1"}, Registerer: l}
	in := ingest.DefaultConfig(k)
	in.TenantMetrics = 1
	publish, err := ingest.New(in, tenant.Fixed("t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := publish.Close(); err != nil {
			t.Error(err)
		}
	})
	c := compactor.DefaultConfig()
	c.Dir, c.InstanceID, c.Registerer, c.TenantMetrics = t.TempDir(), "a", l, 1
	if _, err := compactor.New(c, k, logger); err != nil {
		t.Fatal(err)
	}
	i := indexer.DefaultConfig(k)
	i.Logger, i.Registerer = logger, l
	if _, err := indexer.New(i, nil); err != nil {
		t.Fatal(err)
	}
	for _, stage := range []string{"compactor", "indexer"} {
		watch, err := kafka.NewStallWatch(k, stage, "topic", "group", kafka.NewLag(time.Now))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			watch.Run(ctx, logger)
		})
	}
	admin.New(l).AddCheck("kafka", func(context.Context) error { return nil })
	q := query.DefaultConfig()
	q.Tail.Kafka, q.Logger, q.Registerer, q.TenantMetrics = k, logger, l, 1
	answers, err := query.New(q, nil, tenant.Fixed("t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(answers.Close)
	tenant.OpenKeyFile(filepath.Join(t.TempDir(), "none"), logger, l)
	if _, err := kafka.OpenIngestKeys(filepath.Join(t.TempDir(), "none"), logger, l); err == nil {
		t.Error("there are keys in no file")
	}
	if _, err := quota.Open(quota.Config{Replicas: 1, Registerer: l}); err != nil {
		t.Fatal(err)
	}
	if _, err := front.OpenAuditLog("-", "query", io.Discard, logger, l); err != nil {
		t.Fatal(err)
	}
	tokens := tenant.DefaultTokenConfig()
	tokens.JWKS, tokens.Issuer, tokens.Audience = filepath.Join(t.TempDir(), "none"), "i", "a"
	if _, err := tenant.OpenTokens(t.Context(), tokens, logger, l); err != nil {
		t.Fatal(err)
	}
	families, err := l.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		m := l.metrics[f.GetName()]
		if m.kind != strings.ToLower(f.GetType().String()) || m.help != f.GetHelp() {
			t.Errorf("%s is registered as %s and gathered as %s", m.name, m.kind, f.GetType())
		}
		for _, sample := range f.GetMetric() {
			for _, pair := range sample.GetLabel() {
				if !slices.Contains(m.values[pair.GetName()], pair.GetValue()) {
					m.values[pair.GetName()] = append(m.values[pair.GetName()], pair.GetValue())
				}
			}
		}
	}
	return l.metrics
}

const (
	// clients is the subsystem of the Kafka clients' own metrics: their names are the library's.
	clients = "kafka"
	// checks is that of the checks, which docs/operations.md lists.
	checks = "admin"
)

var metricName = regexp.MustCompile(`^skein_(ingest|compactor|indexer|query|auth|audit|quota|` + checks + `|` + clients + `)_[a-z][a-z0-9_]*$`)

func TestMetrics_HaveNamesOfOneForm(t *testing.T) {
	for name, m := range stages(t) {
		parts := metricName.FindStringSubmatch(name)
		if parts == nil {
			t.Errorf("%s is not skein_<stage>_<noun>_<unit>", name)
			continue
		}
		if parts[1] == clients {
			continue
		}
		unit := name[strings.LastIndex(name, "_")+1:]
		switch {
		case (m.kind == "counter") != (unit == "total"):
			t.Errorf("%s is a %s", name, m.kind)
		case m.kind == "histogram" && !slices.Contains([]string{"seconds", "bytes", "records", "runs"}, unit):
			t.Errorf("%s measures in %q", name, unit)
		case m.help == "" || !strings.HasSuffix(m.help, "."):
			t.Errorf("%s says %q", name, m.help)
		}
		for _, label := range m.labels {
			if slices.Contains([]string{"tenant", "thread", "thread_id", "run", "run_id", "message_id"}, label) &&
				(label != "tenant" || !m.tenants) {
				t.Errorf("%s has a label %s: there is no end to its values", name, label)
			}
			if len(m.values[label]) == 0 {
				t.Errorf("%s: no value of %s is there from the start: a rate over it would miss the first one", name, label)
			}
		}
	}
}

var tables = regexp.MustCompile(`(?s)<!-- metrics: ([a-z]+) -->\n(.*?)<!-- end -->`)

// The tables of docs/metrics.md are made from the code: go test ./test/docs -run Metrics -update.
func TestMetrics_AreAsDocumented(t *testing.T) {
	file := filepath.Join(root, "docs", "metrics.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	left := stages(t)
	made := tables.ReplaceAllStringFunc(string(text), func(found string) string {
		stage := tables.FindStringSubmatch(found)[1]
		return "<!-- metrics: " + stage + " -->\n" + table(stage, left) + "<!-- end -->"
	})
	for name := range left {
		t.Errorf("%s is in none of the tables", name)
	}
	if *update {
		if err := os.WriteFile(file, []byte(made), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if made != string(text) {
		t.Errorf("docs/metrics.md is not what the code says; go test ./test/docs -run Metrics -update rewrites it. It would be:\n%s", made)
	}
}

// table takes a stage's metrics out of all and writes them.
func table(stage string, all map[string]*metric) string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m := all[name]
		if !strings.HasPrefix(name, "skein_"+stage+"_") {
			continue
		}
		delete(all, name)
		labels := make([]string, len(m.labels))
		for i, label := range m.labels {
			labels[i] = "`" + label + "`"
			if values := slices.Sorted(slices.Values(m.values[label])); len(values) > 0 && stage != clients && stage != checks {
				labels[i] += ": `" + strings.Join(values, "`, `") + "`"
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, strings.Join(labels, "; "), strings.ReplaceAll(m.help, "|", `\|`))
	}
	return b.String()
}
