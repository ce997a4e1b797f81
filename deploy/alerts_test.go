package deploy

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
)

const alertsFile = chartDir + "/alerts.yaml"

// language is PromQL as Prometheus reads it by default.
var language = parser.NewParser(parser.Options{})

func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(alertsFile, false, model.UTF8Validation, language, slog.New(slog.DiscardHandler))
	if len(errs) > 0 || len(groups.Groups) != 1 {
		t.Fatal(errs)
	}
	return groups.Groups[0].Rules
}

func readDoc(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// checkMetrics wants an expression to be one, and each metric in it to be Skein's, which docs/metrics.md has from the code.
func checkMetrics(t *testing.T, where, expr string) {
	t.Helper()
	parsed, err := language.ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	documented := readDoc(t, "metrics.md")
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if v, is := node.(*parser.VectorSelector); is && v.Name != "up" && v.Name != "process_start_time_seconds" {
			histogram := regexp.MustCompile(`_(count|sum|bucket)$`).ReplaceAllString(v.Name, "")
			if !strings.Contains(documented, "| `"+v.Name+"` |") && !strings.Contains(documented, "| `"+histogram+"` | histogram |") {
				t.Errorf("%s: there is no metric %s", where, v.Name)
			}
		}
		return nil
	})
}

func TestAlerts_HaveTheirSectionsAndMetrics(t *testing.T) {
	var named, sections []string
	for _, rule := range alerts(t) {
		named = append(named, rule.Alert)
		checkMetrics(t, rule.Alert, rule.Expr)
		want := "https://github.com/skeinhq/skein/blob/main/docs/alerts.md#" + strings.ToLower(rule.Alert)
		if got := rule.Annotations["runbook_url"]; got != want {
			t.Errorf("%s points to %s, want %s", rule.Alert, got, want)
		}
		if s := rule.Labels["severity"]; s != "critical" && s != "warning" || rule.Annotations["summary"] == "" {
			t.Errorf("%s has the severity %q, the summary %q", rule.Alert, s, rule.Annotations["summary"])
		}
	}
	for _, found := range regexp.MustCompile(`(?m)^## (Skein\w+)$`).FindAllStringSubmatch(readDoc(t, "alerts.md"), -1) {
		sections = append(sections, found[1])
	}
	if !slices.Equal(named, sections) {
		t.Errorf("the alerts are %q, docs/alerts.md has sections of %q", named, sections)
	}
}

func TestDashboard_ShowsMetricsThatThereAre(t *testing.T) {
	text, err := os.ReadFile("grafana/stages.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil || len(board.Panels) == 0 {
		t.Fatal(len(board.Panels), err)
	}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			checkMetrics(t, p.Title, strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"))
		}
	}
}

const evaluateEvery = 30 * time.Second

// load reads series, one a line, in the notation of promtool, with a sample each evaluateEvery. (The package promqltest would, too; with
// Prometheus' database come the clients of three clouds.)
func load(t *testing.T, recording string) storage.Queryable {
	t.Helper()
	var all []*storage.SeriesEntry
	for line := range strings.Lines(recording) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		lset, values, err := language.ParseSeriesDesc(line)
		if err != nil {
			t.Fatalf("%.80s: %v", line, err)
		}
		chunk := chunkenc.NewXORChunk()
		to, err := chunk.Appender()
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range values {
			if !v.Omitted {
				to.Append(0, int64(i)*evaluateEvery.Milliseconds(), v.Value)
			}
		}
		all = append(all, &storage.SeriesEntry{Lset: lset, SampleIteratorFn: chunk.Iterator})
	}
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			found := &seriesSet{at: -1}
			for _, series := range all {
				if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(series.Lset.Get(m.Name)) }) {
					found.all = append(found.all, series)
				}
			}
			return found
		},
	}}
}

// seriesSet implements storage.SeriesSet.
type seriesSet struct {
	all []*storage.SeriesEntry
	at  int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at < len(s.all) }
func (s *seriesSet) At() storage.Series                { return s.all[s.at] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// judge evaluates the rules over a recording as Prometheus does, and returns for each alert the times at which it fired.
func judge(t *testing.T, recording string, length time.Duration) map[string][]time.Duration {
	t.Helper()
	samples, rules := load(t, recording), alerts(t)
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, Parser: language})
	fired := map[string][]time.Duration{}
	since := map[string]map[string]time.Duration{} // by alert and labels
	for at := time.Duration(0); at <= length; at += evaluateEvery {
		for _, rule := range rules {
			query, err := engine.NewInstantQuery(t.Context(), samples, nil, rule.Expr, time.Unix(0, 0).Add(at))
			if err != nil {
				t.Fatal(err)
			}
			result := query.Exec(t.Context())
			found, err := result.Vector()
			if err != nil {
				t.Fatalf("%s at %v: %v", rule.Alert, at, err)
			}
			now, firing := map[string]time.Duration{}, false
			for _, sample := range found {
				labels := sample.Metric.DropReserved(func(name string) bool { return name == model.MetricNameLabel }).String()
				now[labels] = at
				if began, ok := since[rule.Alert][labels]; ok {
					now[labels] = began
				}
				firing = firing || at-now[labels] >= time.Duration(rule.For)
			}
			if since[rule.Alert] = now; firing {
				fired[rule.Alert] = append(fired[rule.Alert], at)
			}
			query.Close()
		}
	}
	return fired
}

// What real stages showed through a calm hour and under each fault that docs/alerts.md has: recorded by test/chaos.
func TestAlerts_FireUnderTheirFaultsAndNotInACalmHour(t *testing.T) {
	text, err := os.ReadFile("testdata/faults.txt")
	if err != nil {
		t.Fatal(err)
	}
	faults := map[string][]string{} // alerts by fault
	_, table, _ := strings.Cut(readDoc(t, "alerts.md"), "\n## Faults\n")
	for _, row := range regexp.MustCompile("(?m)^\\| ([^|`]+) \\| (.*`.*) \\|$").FindAllStringSubmatch(table, -1) {
		for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[2], -1) {
			faults[row[1]] = append(faults[row[1]], name[1])
		}
	}
	type window struct {
		fault    string
		from, to time.Duration
	}
	var windows []window
	for _, found := range regexp.MustCompile(`(?m)^# (\d+) to (\d+): (.*)$`).FindAllStringSubmatch(string(text), -1) {
		var ticks [2]int
		for i := range ticks {
			if ticks[i], err = strconv.Atoi(found[i+1]); err != nil {
				t.Fatal(err)
			}
		}
		windows = append(windows, window{found[3], time.Duration(ticks[0]) * evaluateEvery, time.Duration(ticks[1]) * evaluateEvery})
	}
	if len(windows) == 0 || windows[0].to-windows[0].from < time.Hour {
		t.Fatalf("there is no calm hour: %v", windows)
	}
	fired := judge(t, string(text), windows[len(windows)-1].to)
	for _, w := range windows {
		var names []string
		for name, times := range fired {
			// A minute for what is noticed at the end.
			if slices.ContainsFunc(times, func(at time.Duration) bool { return at >= w.from && at <= w.to+time.Minute }) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		t.Logf("%v to %v, %s: %s", w.from, w.to, w.fault, strings.Join(names, ", "))
		want := faults[w.fault]
		delete(faults, w.fault)
		switch calm := w == windows[0]; {
		case calm && len(names) > 0:
			t.Errorf("%q fire in a calm hour", names)
		case !calm && len(want) == 0:
			t.Errorf("docs/alerts.md has no alert for: %s", w.fault)
		}
		for _, name := range want {
			if !slices.Contains(names, name) {
				t.Errorf("%s does not fire: %s", name, w.fault)
			}
		}
	}
	for _, fault := range slices.Sorted(maps.Keys(faults)) {
		t.Errorf("nothing was recorded of: %s", fault)
	}
}

// Faults that no test can do to a real stage within minutes.
func TestAlerts_FireWhereNothingWasRecorded(t *testing.T) {
	for name, series := range map[string]string{
		"SkeinDiskFull":       "skein_compactor_disk_free_bytes 20x20 9x60\nskein_compactor_disk_size_bytes 100x80",
		"SkeinErasureOverdue": `skein_admin_check_failing{check="purge"} 0x20 1x60`,
		"SkeinEventsLost":     "skein_compactor_lost_offsets_total _x20 7x60",
	} {
		fired := judge(t, series, 40*time.Minute)
		if first := slices.Concat(fired[name], []time.Duration{0})[0]; first < 10*time.Minute {
			t.Errorf("%s fires at %v: %s", name, first, fmt.Sprint(fired))
		}
	}
}
