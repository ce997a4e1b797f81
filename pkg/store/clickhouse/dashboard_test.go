package clickhouse

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/store"
)

const dashboardFile = "../../../deploy/grafana/skein.json"

// A panel of the dashboard: a question of docs/questions, or one of its own over time.
type panel struct {
	title, kind, question, sql string
}

var panels = []panel{
	{title: "Runs by status", kind: "timeseries", sql: `SELECT toStartOfHour(started_at) AS time, status, count() AS runs
FROM v_runs_by_time
WHERE tenant = {tenant:String} AND started_at >= {from:DateTime64(3, 'UTC')} AND started_at < {to:DateTime64(3, 'UTC')}
GROUP BY time, status
ORDER BY time, status`},
	{title: "Tokens by model", kind: "timeseries", sql: `SELECT toStartOfHour(started_at) AS time, model, sum(tokens) AS tokens
FROM
(
    SELECT started_at, arrayJoin(arrayZip(models, arrayMap((i, o) -> i + o, model_input_tokens, model_output_tokens))) AS used, used.1 AS model, used.2 AS tokens
    FROM v_runs_by_time
    WHERE tenant = {tenant:String} AND started_at >= {from:DateTime64(3, 'UTC')} AND started_at < {to:DateTime64(3, 'UTC')}
)
GROUP BY time, model
ORDER BY time, model`},
	{title: "Duration in milliseconds, p50 and p95", kind: "timeseries", sql: `SELECT toStartOfHour(started_at) AS time, quantileExact(0.5)(duration_ms) AS p50, quantileExact(0.95)(duration_ms) AS p95
FROM v_runs_by_time
WHERE tenant = {tenant:String} AND duration_ms IS NOT NULL AND started_at >= {from:DateTime64(3, 'UTC')} AND started_at < {to:DateTime64(3, 'UTC')}
GROUP BY time
ORDER BY time`},
	{title: "Runs of all tenants", kind: "table", sql: `SELECT tenant, count() AS runs, countIf(status = 'error') AS errors, sum(total_tokens) AS tokens
FROM v_runs_by_time
WHERE started_at >= {from:DateTime64(3, 'UTC')} AND started_at < {to:DateTime64(3, 'UTC')}
GROUP BY tenant
ORDER BY runs DESC
LIMIT 50`},
	{title: "How runs end", kind: "table", question: "ends"},
	{title: "Time to the first token", kind: "table", question: "first_token"},
	{title: "Regenerations and edits", kind: "table", question: "regenerations"},
	{title: "Regenerations and edits by label", kind: "table", question: "regenerations_by_label"},
	{title: "Spent on branches that nobody went on from", kind: "table", question: "unused_branches"},
	{title: "Tools", kind: "table", question: "tools"},
	{title: "Interrupts", kind: "table", question: "interrupts"},
	{title: "Violations of the protocol", kind: "table", question: "violations"},
	{title: "Threads that come back", kind: "table", question: "returns"},
	{title: "Deepest threads", kind: "table", question: "deep_threads"},
	{title: "Compression", kind: "table", question: "compression"},
}

// grafana turns the parameters of a question into Grafana's variables and the macros of its ClickHouse plugin.
var grafana = strings.NewReplacer("{tenant:String}", "${tenant:singlequote}", "{from:DateTime64(3, 'UTC')}", "$__fromTime",
	"{to:DateTime64(3, 'UTC')}", "$__toTime")

// asked is what Grafana makes of them.
var asked = strings.NewReplacer("${tenant:singlequote}", "'t'", "$__fromTime", "toDateTime(1767225600)", "$__toTime",
	"toDateTime(1798761600)")

type object = map[string]any

// dashboard builds the dashboard of the panels.
func dashboard(t *testing.T) object {
	source := object{"type": "grafana-clickhouse-datasource", "uid": "${source}"}
	var list []any
	for i, p := range panels {
		description := ""
		if p.question != "" {
			text, err := os.ReadFile("../../../docs/questions/" + p.question + ".sql")
			if err != nil {
				t.Fatal(err)
			}
			p.sql = strings.TrimSpace(string(text))
			for line := range strings.Lines(p.sql) {
				if said, is := strings.CutPrefix(line, "-- "); is {
					description += said
				}
			}
		}
		format := 1 // a table
		if p.kind == "timeseries" {
			format = 0
		}
		list = append(list, object{
			"id": i + 1, "title": p.title, "description": strings.TrimSpace(strings.ReplaceAll(description, "\n", " ")), "type": p.kind,
			"datasource": source,
			"gridPos":    object{"h": 8, "w": 12, "x": 12 * (i % 2), "y": 8 * (i / 2)},
			"targets": []any{object{"refId": "A", "datasource": source, "editorType": "sql", "queryType": p.kind, "format": format,
				"rawSql": grafana.Replace(p.sql)}},
		})
	}
	return object{
		"uid": "skein-analytics", "title": "Skein: runs", "tags": []any{"skein"}, "schemaVersion": 39, "timezone": "utc", "editable": true,
		"time": object{"from": "now-7d", "to": "now"}, "panels": list,
		"templating": object{"list": []any{
			object{"name": "source", "label": "ClickHouse", "type": "datasource", "query": "grafana-clickhouse-datasource"},
			object{"name": "tenant", "label": "Tenant", "type": "query", "datasource": source, "refresh": 2,
				"query": "SELECT DISTINCT tenant FROM runs_by_time WHERE started_at >= $__fromTime ORDER BY tenant"},
		}},
	}
}

// The dashboard asks the questions of docs/questions, and ClickHouse answers every statement in it with rows.
func TestDashboard_AsksWhatClickHouseAnswers(t *testing.T) {
	var want bytes.Buffer
	e := json.NewEncoder(&want)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(dashboard(t)); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(dashboardFile, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want.Bytes()) {
		t.Errorf("%s is not what is made of the questions; run go test ./pkg/store/clickhouse -run Dashboard -update", dashboardFile)
	}
	questions, err := filepath.Glob("../../../docs/questions/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range questions {
		name := strings.TrimSuffix(filepath.Base(file), ".sql")
		if !slices.ContainsFunc(panels, func(p panel) bool { return p.question == name }) {
			t.Errorf("no panel asks %s", name)
		}
	}
	var read struct {
		Panels []struct {
			Title   string
			Targets []struct{ RawSQL string }
		}
		Templating struct {
			List []struct{ Type, Query string }
		}
	}
	if err := json.Unmarshal(have, &read); err != nil {
		t.Fatal(err)
	}
	s := open(t)
	if err := s.Write(t.Context(), []store.Entry{told(1, "th", "r1"), told(2, "th", "r2")}); err != nil {
		t.Fatal(err)
	}
	answers := func(title, sql string) {
		if err := s.query(t.Context(), time.Minute, nil, asked.Replace(sql), nil, func(row) error { return nil }); err != nil {
			t.Errorf("%s: %v:\n%s", title, err, sql)
		}
	}
	for _, p := range read.Panels {
		answers(p.Title, p.Targets[0].RawSQL)
	}
	for _, v := range read.Templating.List {
		if v.Type == "query" {
			answers("variable", v.Query)
		}
	}
}
