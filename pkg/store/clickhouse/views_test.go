package clickhouse

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
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
	e.Run.Stats.Usage = map[string]record.TokenUsage{"large": {InputTokens: 2_000_000, OutputTokens: 500_000, TotalTokens: 2_500_000}}
	e.Run.Messages = []agui.Message{
		{ID: "a", Role: agui.RoleAssistant, Raw: json.RawMessage(`{"id":"a","role":"assistant","content":"Looking","toolCalls":[{"id":"` + run + `-c","type":"function","function":{"name":"search","arguments":"{}"}}]}`)},
		{ID: "t", Role: agui.RoleTool, Raw: json.RawMessage(`{"id":"t","role":"tool","toolCallId":"` + run + `-c","content":[{"type":"text","text":"no"},{"type":"text","text":"luck"}],"error":"timeout"}`)},
	}
	e.Run.Stats.ToolCallTimes = map[string][]int64{run + "-c": {1500, 1750}}
	e.Run.Interrupts = []json.RawMessage{json.RawMessage(`{"id":"i","reason":"approval","message":"Sure?"}`)}
	return e
}

func TestViews_AnswerQuestions(t *testing.T) {
	s := open(t)
	first, again := told(10, "th", "r1"), told(11, "th", "r2")
	again.Run.StartedAt = first.Run.StartedAt.Add(time.Minute)
	again.Run.ParentRunID, again.Run.BranchID, again.Run.Raw.First = "r1", "side", first.Run.Raw.First+20
	again.Run.Status, again.Run.Interrupts = record.StatusFinished, nil
	again.Run.Resumes = []json.RawMessage{json.RawMessage(`{"interruptId":"i","status":"resolved","payload":true}`)}
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
	moved := told(9, "th", "leaf") // a later record of a run counts alone
	moved.Run.ParentRunID, moved.Run.Raw.First = "b", 30
	for _, part := range [][]store.Entry{entries, {moved}} {
		if err := s.Write(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	const columns = "(run_id, parent_run_id, children, is_tip, place, siblings, superseded, newest_sibling)"
	want := "('root','',2,false,1,2,true,'other-root') ('a','root',0,true,1,2,true,'b') ('b','root',1,false,2,2,false,'b') ('leaf','b',0,true,1,1,false,'leaf') ('other-root','',0,true,2,2,false,'other-root')"
	order := "indexOf(['root', 'a', 'b', 'leaf', 'other-root'], run_id)"
	if got := text(t, s, "SELECT arrayStringConcat(groupArray(toString("+columns+")), ' ') FROM (SELECT * FROM v_places ORDER BY "+order+
		")"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
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
