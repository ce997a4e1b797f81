package clickhouse

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/store"
)

// text asks for one value, as text.
func text(tb testing.TB, s *Store, query string) string {
	tb.Helper()
	var v string
	if err := s.conn.QueryRow(tb.Context(), query).Scan(&v); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
	return v
}

// told returns a sealed run that has something for every view: a call with a failed result, an interrupt, and an answer to it.
func told(version int64, thread, run string) store.Entry {
	e := sealedEntry(version)
	e.ThreadID, e.RunID = thread, run
	e.Run.Status, e.Run.BranchID, e.Run.State = record.StatusInterrupted, "main", json.RawMessage(`{}`)
	e.Run.StartedAt = time.Date(2026, 9, 17, 12, 0, 0, 0, time.UTC)
	end := e.Run.StartedAt.Add(5 * time.Second)
	e.Run.EndedAt, e.Run.Agent = &end, "shop"
	e.Run.Stats.Usage = []record.TokenUsage{{Model: "large", InputTokens: new(int64(2_000_000)), OutputTokens: new(int64(500_000))}}
	e.Run.Messages = []agui.Message{
		{ID: "a", Role: agui.RoleAssistant, Raw: json.RawMessage(`{"id":"a","role":"assistant","content":"Looking","toolCalls":[{"id":"` + run + `-c","type":"function","function":{"name":"search","arguments":"{}"}}]}`)},
		{ID: "t", Role: agui.RoleTool, Raw: json.RawMessage(`{"id":"t","role":"tool","toolCallId":"` + run + `-c","content":[{"type":"text","text":"no"},{"type":"text","text":"luck"}],"error":"timeout"}`)},
	}
	e.Run.Stats.ToolCallTimes = map[string][]int64{run + "-c": {1500, 1750}}
	e.Run.Interrupts = []json.RawMessage{json.RawMessage(`{"id":"i","reason":"approval","message":"Sure?"}`)}
	return e
}

// askedTwice returns two runs of thread "th" that have something for every view: the second one answers the first one's interrupt.
func askedTwice(version int64) (first, again store.Entry) {
	first, again = told(version, "th", "r1"), told(version+1, "th", "r2")
	again.Run.StartedAt = first.Run.StartedAt.Add(time.Minute)
	again.Run.ParentRunID, again.Run.BranchID, again.Run.Raw.First = "r1", "side", first.Run.Raw.First+20
	again.Run.Status, again.Run.Interrupts = record.StatusFinished, nil
	again.Run.Resumes = []json.RawMessage{json.RawMessage(`{"interruptId":"i","status":"resolved","payload":true}`)}
	return first, again
}

func TestViews_HaveTheTracesOfRuns(t *testing.T) {
	s := open(t)
	first, again := askedTwice(10)
	again.Run.Traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	if err := s.Write(t.Context(), []store.Entry{first, again}); err != nil {
		t.Fatal(err)
	}
	const query = "SELECT toString(groupArray((thread_id, run_id, status, trace_id))) FROM v_traces JOIN v_runs USING (tenant, thread_id, run_id)"
	if got := text(t, s, query); got != "[('th','r2','finished','4bf92f3577b34da6a3ce929d0e0e4736')]" {
		t.Errorf("traces: %s", got)
	}
}

func TestViews_AnswerQuestions(t *testing.T) {
	s := open(t)
	first, again := askedTwice(10)
	if err := s.exec(t.Context(), "INSERT INTO prices (model, input_per_million, output_per_million) VALUES ('large', 3, 8)"); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(t.Context(), []store.Entry{first, again}); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"SELECT toString(cost) FROM v_runs WHERE run_id = 'r1'":                                                           "10",
		"SELECT text || '|' || agent || '|' || model FROM v_messages WHERE run_id = 'r1' AND message_id = 't'":            "no\nluck|shop|large",
		"SELECT toString((name, run_id, argument_bytes, has_result, failed, error)) FROM v_tool_calls ORDER BY 1 LIMIT 1": "('search','r1',2,true,true,'timeout')",
		"SELECT toString((run_started_at, started_at, duration_ms)) FROM v_tool_calls WHERE run_id = 'r1'":                "('2026-09-17 12:00:00.000','2026-09-17 12:00:01.500',250)",
		"SELECT toString((run_id, reason, answers, answered_by_run_id, answer, wait_ms)) FROM v_interrupts":               "('r1','approval',1,'r2','resolved',55000)",
		"SELECT toString(groupArray((branch_id, runs, parent_run_id, tip_status, toUInt8(is_latest)))) FROM (SELECT * FROM v_branches ORDER BY branch_id)": "" +
			"[('main',1,'','interrupted',0),('side',1,'r1','finished',1)]",
	} {
		if got := text(t, s, query); got != want {
			t.Errorf("%s\n got %s\nwant %s", query, got, want)
		}
	}
}

// Each entry is priced by its provider and model, else by the model's price without a provider. What was not reported is neither zero
// nor priced.
func TestViews_CountAndPriceTokens(t *testing.T) {
	s := open(t)
	if err := s.exec(t.Context(), `INSERT INTO prices (model, provider, input_per_million, output_per_million, cached_input_per_million,
cache_write_input_per_million, reasoning_per_million) VALUES ('m', '', 3, 8, NULL, NULL, NULL), ('m', 'anthropic', 1, 10, 0.1, 1.5, 20), ('gone', 'openai', 1, 1, NULL, NULL, NULL)`); err != nil {
		t.Fatal(err)
	}
	million := func(n float64) *int64 { return new(int64(n * 1e6)) }
	runs := map[string]struct {
		usage []record.TokenUsage
		want  string // input, output, total, reasoning, cached, cache_write, cost
	}{
		"none": {nil, "(NULL,NULL,NULL,NULL,NULL,NULL,NULL)"},
		"no provider": {[]record.TokenUsage{{Model: "m", InputTokens: million(2), OutputTokens: million(1)}},
			"(2000000,1000000,3000000,NULL,NULL,NULL,14)"},
		"another provider": {[]record.TokenUsage{{Provider: "openai", Model: "m", InputTokens: million(2), OutputTokens: million(1), CachedInputTokens: million(1)}}, "(2000000,1000000,3000000,NULL,1000000,NULL,14)"},
		"zero":             {[]record.TokenUsage{{Model: "m", InputTokens: million(0), OutputTokens: million(0)}}, "(0,0,0,NULL,NULL,NULL,0)"},
		"rates of its own": {[]record.TokenUsage{{Provider: "anthropic", Model: "m", InputTokens: million(10), OutputTokens: million(3), CachedInputTokens: million(5), CacheWriteInputTokens: million(2), ReasoningTokens: million(1)}}, "(10000000,3000000,13000000,1000000,5000000,2000000,46.5)"},
		"no input":         {[]record.TokenUsage{{Model: "m", OutputTokens: million(1)}}, "(NULL,1000000,NULL,NULL,NULL,NULL,NULL)"},
		"no price": {[]record.TokenUsage{{Model: "gone", InputTokens: million(1), OutputTokens: million(1)}},
			"(1000000,1000000,2000000,NULL,NULL,NULL,NULL)"},
		"one has no output": {[]record.TokenUsage{{Model: "m", InputTokens: million(1), OutputTokens: million(1)}, {Provider: "p", Model: "m", InputTokens: million(4)}}, "(5000000,1000000,2000000,NULL,NULL,NULL,NULL)"},
	}
	var entries []store.Entry
	for run, c := range runs {
		e := told(int64(len(entries)), "th", run)
		e.Run.Stats.Usage = c.usage
		entries = append(entries, e)
	}
	if err := s.Write(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	const columns = "toString((input_tokens, output_tokens, total_tokens, "
	for run, c := range runs {
		if got := text(t, s, "SELECT "+columns+"reasoning_tokens, cached_input_tokens, cache_write_input_tokens, cost)) FROM v_runs WHERE run_id = '"+run+"'"); got != c.want {
			t.Errorf("%s: %s, want %s", run, got, c.want)
		}
	}
	const sums = "(20000000,8000000,23000000)" // as GET /v1/statistics has them
	for _, query := range []string{"v_branches", "(SELECT sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens, sum(total_tokens) AS total_tokens FROM v_runs)",
		"(SELECT sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens, sum(run_tokens) AS total_tokens FROM v_runs_by_time JOIN (SELECT DISTINCT run_id, run_tokens FROM v_messages) AS m USING (run_id))"} {
		if got := text(t, s, "SELECT "+strings.TrimSuffix(columns, ", ")+")) FROM "+query); got != sums {
			t.Errorf("%s: %s, want %s", query, got, sums)
		}
	}
	got, err := s.Statistics(t.Context(), "t", search.Statistics{
		Measures: []search.Measure{search.InputTokens, search.OutputTokens, search.Tokens}, Limit: 1,
		Bounds: search.Bounds{Rows: 1e6, Time: time.Minute},
	})
	if err != nil || *got.Groups[0].Values[0] != 20e6 || *got.Groups[0].Values[1] != 8e6 || *got.Groups[0].Values[2] != 23e6 {
		t.Errorf("statistics: %+v, %v", got, err)
	}
}

// A tip is a run that none goes on from, and a run is superseded where a later one of the same parent took its place; roots are siblings
// too.
func TestViews_SayWhereARunStands(t *testing.T) {
	s := open(t)
	var entries []store.Entry
	for i, r := range []struct{ run, parent string }{{"root", ""}, {"a", "root"}, {"b", "root"}, {"leaf", "a"}, {"other-root", ""}} {
		e := told(int64(i), "th", r.run)
		e.Run.ParentRunID, e.Run.Raw.First = r.parent, int64(10*i)
		entries = append(entries, e)
	}
	for i, run := range []string{"elsewhere", "spawned-1", "spawned-2"} { // the latter by one run
		e := told(int64(6+i), "th", run)
		e.Run.SpawnedBy, e.Run.Spawned, e.Run.RootRunID, e.Run.BranchID, e.Run.Raw.First = "a", i > 0, run, run, int64(60+i)
		entries = append(entries, e)
	}
	moved := told(9, "th", "leaf") // a later record of a run counts alone
	moved.Run.ParentRunID, moved.Run.Raw.First = "b", 30
	for _, part := range [][]store.Entry{entries, {moved}} {
		if err := s.Write(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	const columns = "(run_id, parent_run_id, children, is_tip, place, siblings, superseded, newest_sibling)"
	want := "('root','',2,false,1,2,true,'other-root') ('a','root',0,true,1,2,true,'b') ('b','root',1,false,2,2,false,'b') ('leaf','b',0,true,1,1,false,'leaf') ('other-root','',0,true,2,2,false,'other-root')" +
		" ('elsewhere','',0,true,1,1,false,'elsewhere') ('spawned-1','',0,true,1,1,false,'spawned-1') ('spawned-2','',0,true,1,1,false,'spawned-2')"
	order := "indexOf(['root', 'a', 'b', 'leaf', 'other-root', 'elsewhere', 'spawned-1', 'spawned-2'], run_id)"
	if got := text(t, s, "SELECT arrayStringConcat(groupArray(toString("+columns+")), ' ') FROM (SELECT * FROM v_places ORDER BY "+order+
		")"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	latest := "SELECT toString(groupArray((branch_id, toUInt8(is_latest)))) FROM (SELECT * FROM v_branches ORDER BY branch_id)"
	if got := text(t, s, latest); got != "[('elsewhere',1),('main',0),('spawned-1',1),('spawned-2',1)]" {
		t.Errorf("latest of their lines: %s", got)
	}
}

// Each checkpoint of a run leaves a row with status running until the server has merged it away. A question over the table counts them;
// the same question to the view does not.
func TestViews_LeaveOutStaleVersions(t *testing.T) {
	s := open(t)
	if err := s.exec(t.Context(), "SYSTEM STOP MERGES runs"); err != nil {
		t.Fatal(err)
	}
	const runs, checkpoints = 5, 3
	for v := range checkpoints + 1 {
		var entries []store.Entry
		for r := range runs {
			e := told(int64(v*runs+r), "th", fmt.Sprint("r", r))
			if v < checkpoints {
				e.Run.Status = record.StatusRunning
			}
			entries = append(entries, e)
		}
		if err := s.Write(t.Context(), entries); err != nil {
			t.Fatal(err)
		}
	}
	const question = "SELECT toString((countIf(status = 'running'), count())) FROM "
	if got := text(t, s, question+"runs"); got != "(15,20)" {
		t.Errorf("without FINAL %s: there are no stale versions, so this test shows nothing", got)
	}
	if got := text(t, s, question+"v_runs"); got != "(0,5)" {
		t.Errorf("the view says %s, want (0,5)", got)
	}
	if got := text(t, s, "SELECT toString((count(), any(runs))) FROM v_branches"); got != "(1,5)" {
		t.Errorf("v_branches says %s, want (1,5)", got)
	}
}
