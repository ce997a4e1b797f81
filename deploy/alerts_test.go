package deploy

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// Each check of readiness has an alert, but for those whose faults others tell of by what they cost, and for the audit log.
func TestAlerts_NameEachCheck(t *testing.T) {
	named := map[string]bool{"ingest": true, "session": true, "reading": true, "versions": true, "audit-log": true}
	for _, rule := range alerts(t) {
		for _, check := range regexp.MustCompile(`check=~?"([^"]+)"`).FindAllStringSubmatch(rule.Expr, -1) {
			for name := range strings.SplitSeq(check[1], "|") {
				named[name] = true
			}
		}
	}
	added := regexp.MustCompile(`(?:Admin\.Add(?:Check|Dependency|Optional|Remark)|p\.secure)\(.*?"([a-z-]+)",`)
	there := map[string]bool{}
	for _, pattern := range []string{"../internal/app/*.go", "../cmd/*/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range added.FindAllSubmatch(text, -1) {
				there[string(found[1])] = true
			}
		}
	}
	if !maps.Equal(named, there) {
		t.Errorf("alerts and this test name the checks %q, there are %q", slices.Sorted(maps.Keys(named)), slices.Sorted(maps.Keys(there)))
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

// load reads series, one a line, in the notation of promtool, with a sample each evaluateEvery, and leaves out samples before a time. (The
// package promqltest would read them, too; with Prometheus' database come the clients of three clouds.)
func load(t *testing.T, recording string, from time.Duration) storage.Queryable {
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
			if at := time.Duration(i) * evaluateEvery; !v.Omitted && at >= from {
				to.Append(0, at.Milliseconds(), v.Value)
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

// judge evaluates the rules over samples as Prometheus does that began at a time, and returns when each alert fired first, by its labels.
func judge(t *testing.T, samples storage.Queryable, from, to time.Duration) map[string]map[string]time.Duration {
	t.Helper()
	rules := alerts(t)
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, Parser: language})
	fired := map[string]map[string]time.Duration{}
	since := map[string]map[string]time.Duration{} // by alert and labels
	for at := from; at <= to; at += evaluateEvery {
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
			now := map[string]time.Duration{}
			for _, sample := range found {
				labels := sample.Metric.DropReserved(func(name string) bool { return name == model.MetricNameLabel }).String()
				now[labels] = at
				if began, ok := since[rule.Alert][labels]; ok {
					now[labels] = began
				}
				if _, already := fired[rule.Alert][labels]; !already && at-now[labels] >= time.Duration(rule.For) {
					if fired[rule.Alert] == nil {
						fired[rule.Alert] = map[string]time.Duration{}
					}
					fired[rule.Alert][labels] = at
				}
			}
			since[rule.Alert] = now
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
	calm := false
	for line := range strings.Lines(string(text)) {
		var from, to int
		if n, _ := fmt.Sscanf(line, "# %d to %d:", &from, &to); n < 2 {
			continue
		}
		_, fault, _ := strings.Cut(strings.TrimSpace(line), ": ")
		start := time.Duration(from) * evaluateEvery
		fired := judge(t, load(t, string(text), start), start, time.Duration(to+2)*evaluateEvery) // 2 for what is noticed at the end
		t.Logf("%s: %q", fault, slices.Sorted(maps.Keys(fired)))
		for _, name := range faults[fault] {
			if fired[name] == nil {
				t.Errorf("%s does not fire: %s", name, fault)
			}
		}
		if fault == "a calm hour" {
			calm = len(fired) == 0 && time.Duration(to-from)*evaluateEvery > 59*time.Minute
		} else if len(faults[fault]) == 0 {
			t.Errorf("docs/alerts.md has no alert for: %s", fault)
		}
		delete(faults, fault)
	}
	if !calm {
		t.Error("there is no calm hour in which nothing fires")
	}
	for _, fault := range slices.Sorted(maps.Keys(faults)) {
		t.Errorf("nothing was recorded of: %s", fault)
	}
}

// Faults that no test can do to a real stage within minutes. They begin after 10 minutes.
func TestAlerts_FireWhereNothingWasRecorded(t *testing.T) {
	for alert, series := range map[string]string{
		`SkeinDiskFull{instance="c"}`: `skein_compactor_disk_free_bytes{instance="c"} 4e9x20 3e9x60
			skein_compactor_disk_size_bytes{instance="c"} 36e9x80
			skein_compactor_disk_free_bytes{instance="large"} 9e9x80
			skein_compactor_disk_size_bytes{instance="large"} 100e9x80`,
		`SkeinErasureOverdue{check="purge"}`: `skein_admin_check_failing{check="purge"} 0x20 1x60`,
		`SkeinEventsLost{}`:                  `skein_compactor_lost_offsets_total _x20 7x60`,
		`SkeinEventsLost{reason="no-room"}`:  `skein_ingest_proxied_events_left_out_total{reason="no-room"} 0x20 7x60`,
		`SkeinRebalances{instance="the group"}`: `skein_compactor_partitions{state="open"} 6x80
			skein_compactor_transactions_total{outcome="unknown"} 0x20 12x60`,
		`SkeinLag{stage="indexer"}`:     `skein_indexer_lag_seconds 9x20 400x60`,
		`SkeinLag{stage="compactor"}`:   `skein_compactor_lag_seconds 9x20 400x60`,
		`SkeinStoreAway{check="store"}`: `skein_admin_check_failing{check="store"} 0x20 1x60`,
		`SkeinStoreAway{check="index"}`: `skein_admin_check_failing{check="index"} 0x20 1x60`,
		`SkeinRebalances{instance="the group", namespace="b"}`: `skein_compactor_partitions{state="open",namespace="b"} 6x80
			skein_compactor_partition_open_duration_seconds_count{namespace="b"} 6x20 6+1x60`,
		`SkeinStaleCredentials{check="quotas"}`:             `skein_quota_file_stale 0x20 1x60`,
		`SkeinStaleCredentials{check="api-keys-file"}`:      `skein_admin_check_failing{check="api-keys-file"} 0x20 1x60`,
		`SkeinDeadLetters{namespace="b", reason="size"}`:    `skein_compactor_dead_letters_total{namespace="b",reason="size"} 0x20 1x60`,
		`SkeinDeadLetters{namespace="b", reason="refused"}`: `skein_indexer_refused_total{namespace="b"} 0x20 1x60`,
		`SkeinRefuses{namespace="b", stage="ingest"}`: `skein_ingest_requests_total{outcome="accepted",namespace="b"} 0+99x80
			skein_ingest_requests_total{outcome="unavailable",namespace="b"} 0x20 0+9x60`,
		`SkeinStageAbsent{namespace="b", stage="ingest"}`: `skein_admin_check_failing{check="kafka",namespace="b"} 0x80
			skein_ingest_ready{namespace="b"} 1x20 stale`,
		`SkeinStageAbsent{namespace="b", stage="indexer"}`: `skein_admin_check_failing{check="kafka",namespace="b"} 0x80
			skein_indexer_partitions{namespace="b"} 6x20 stale`,
		`SkeinStageAbsent{namespace="b", stage="query"}`: `skein_admin_check_failing{check="kafka",namespace="b"} 0x80
			skein_query_streams{namespace="b"} 1x20 stale`,
		// Another installation's processes do not stand in for those that are gone.
		`SkeinStageAbsent{namespace="b", stage="compactor"}`: `skein_admin_check_failing{check="kafka",namespace="a"} 0x80
			skein_admin_check_failing{check="kafka",namespace="b"} 0x80
			skein_compactor_partitions{namespace="a"} 6x80
			skein_compactor_partitions{namespace="b"} 6x20 stale`,
		`SkeinNothingSealed{namespace="b"}`: `skein_ingest_events_total{kind="event",namespace="a"} 0+9x80
			skein_ingest_events_total{kind="event",namespace="b"} 0+9x80
			skein_compactor_records_total{kind="sealed",namespace="a"} 0+1x80
			skein_compactor_records_total{kind="sealed",namespace="b"} 0+1x20 20x60`,
	} {
		name, labels, _ := strings.Cut(alert, "{")
		labels = "{" + labels
		fired := judge(t, load(t, series, 0), 0, 40*time.Minute)[name]
		other := strings.NewReplacer(`"b"`, `"a"`, `"c"`, `"large"`).Replace(labels)
		if at := fired[labels]; at < 10*time.Minute || other != labels && fired[other] > 0 {
			t.Errorf("%s fires at %v", alert, fired)
		}
	}
}

// fleet has the series of an installation's processes, which start for the first time, or are restarted, one after another.
func fleet(restarted bool) string {
	// The last values before a restart, and those after it.
	const all = `up{ 1|0 0 1
		process_start_time_seconds{ 1000|2000
		skein_admin_check_failing{check="kafka" 0|1 0`
	stages := map[string]string{
		"ingest": `skein_ingest_ready{ 1|0 1
			skein_ingest_events_total{kind="event" 0+9|0+9
			skein_ingest_requests_total{outcome="accepted" 0+9|0+9
			skein_ingest_requests_total{outcome="unavailable" 0|0
			skein_ingest_proxied_events_left_out_total{reason="no-room" 0|0
			skein_quota_file_stale{ 0|0`,
		"compactor": `skein_compactor_partitions{state="open" 4|0 4
			skein_compactor_partitions{state="opening" 0|4 0
			skein_compactor_partition_open_duration_seconds_count{ 4|0 4
			skein_compactor_transactions_total{outcome="unknown" 0|0 1
			skein_compactor_lag_seconds{ 1|149 1
			skein_compactor_records_total{kind="sealed" 0+9|0+9
			skein_compactor_dead_letters_total{reason="malformed" 0|0
			skein_compactor_lost_offsets_total{ 0|0
			skein_compactor_disk_free_bytes{ 9e9|9e9
			skein_compactor_disk_size_bytes{ 36e9|36e9`,
		"indexer": `skein_indexer_partitions{ 6|0 6
			skein_indexer_lag_seconds{ 1|20 1
			skein_indexer_refused_total{ 0|0
			skein_admin_check_failing{check="index" 0|1 0`,
		"query": `skein_query_streams{ 0|0
			skein_query_requests_total{status="2xx" 0+9|0+9
			skein_query_requests_total{status="5xx" 0|0
			skein_admin_check_failing{check="store" 0|1 0`,
	}
	var text strings.Builder
	for i, process := range []string{"ingest-1", "ingest-2", "compactor-1", "compactor-2", "compactor-3", "indexer-1", "query-1"} {
		stage, _, _ := strings.Cut(process, "-")
		for line := range strings.Lines(all + "\n" + stages[stage]) {
			metric, values, _ := strings.Cut(strings.TrimSpace(line), " ")
			before, after, _ := strings.Cut(values, "|")
			began := fmt.Sprintf("_x%d", 1+i)
			if restarted {
				began = fmt.Sprintf("%sx%d stale _", before, 60+6*i)
			}
			metric = strings.Replace(metric, "{", fmt.Sprintf("{instance=%q,", process), 1)
			fmt.Fprintf(&text, "%s} %s %sx400\n", metric, began, after)
		}
	}
	return text.String()
}

func TestAlerts_AreSilentWhereNothingIsWrong(t *testing.T) {
	var brokers strings.Builder
	for i := range 20 {
		fmt.Fprintf(&brokers, "skein_compactor_partitions{instance=\"%d\",state=\"open\"} 6x200\n", i)
		fmt.Fprintf(&brokers, "skein_compactor_transactions_total{instance=\"%d\",outcome=\"unknown\"} 0x20 1x6 2x174\n", i)
	}
	for what, row := range map[string]struct {
		series string
		from   time.Duration
	}{
		"each process restarted once":               {series: fleet(true)},
		"a first deployment, and nobody comes":      {series: strings.ReplaceAll(fleet(false), "+9", "")},
		"three brokers of 20 compactors, restarted": {series: brokers.String()},
		"one run, and its compactor is replaced before the scrape that shows it": {series: `
			skein_ingest_events_total{kind="event"} 0x20 4x180
			skein_compactor_records_total{instance="old",kind="sealed"} 0x20 stale
			skein_compactor_records_total{instance="new",kind="sealed"} _x22 0x180`},
		"offsets lost before, and Prometheus away for 8 minutes": {from: 61 * time.Minute, series: `
			skein_compactor_lost_offsets_total 7x200 _x16 7x200`},
	} {
		for alert, fired := range judge(t, load(t, row.series, 0), row.from, 200*time.Minute) {
			// Rows that are not of a whole installation have no stages.
			if alert != "SkeinStageAbsent" || strings.Contains(row.series, "admin_check_failing") {
				t.Errorf("%s: %s fires at %v", what, alert, fired)
			}
		}
	}
}
