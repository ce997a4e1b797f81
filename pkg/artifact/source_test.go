package artifact_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/artifact"
)

var began = time.Date(2026, 4, 14, 19, 0, 0, 0, time.UTC)

func event(tb testing.TB, text string) *agui.Event {
	tb.Helper()
	ev, err := agui.Decode([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return ev
}

func messages(tb testing.TB, list string) []agui.Message {
	tb.Helper()
	return event(tb, `{"type":"MESSAGES_SNAPSHOT","messages":`+list+`}`).Messages()
}

func jsonOf(tb testing.TB, v any) string {
	tb.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

func TestFromRun_KeepsTextMessagesAndTellsWhatItLeavesOut(t *testing.T) {
	run := artifact.Run{
		ThreadID: "t", RunID: "r", ParentRunID: "p", StartedAt: began,
		Terminal: event(t, `{"type":"RUN_ERROR","message":"no answer","code":"timeout"}`),
		Messages: messages(t, `[
			{"id":"1","role":"system","content":"be kind"},
			{"id":"2","role":"user","name":"Ann","content":"hi","metadata":{"a":1}},
			{"id":"3","role":"user","content":[{"type":"text","text":"look"}]},
			{"id":"4","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},
			{"id":"5","role":"assistant","content":"","toolCalls":[]},
			{"id":"6","role":"tool","toolCallId":"c","content":"42","encryptedValue":"x"},
			{"id":"7","role":"assistant","content":"it is 42","toolCalls":[]},
			{"id":"8","role":"reasoning","content":"hm"},
			{"id":"9","role":"activity","activityType":"plan","content":{}}]`),
	}
	a, report, err := artifact.FromRun(run, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"schema":"ag-ui.compacted-message-snapshot.export.v1","framework":"ag_ui","surface":"compacted_message_snapshot_artifact",` +
		`"thread_id_ref":"t","run_id_ref":"r","parent_run_id_ref":"p","started_at":"2026-04-14T19:00:00Z","messages":[` +
		`{"id":"1","role":"system","content":"be kind"},{"id":"2","role":"user","content":"hi","name":"Ann"},` +
		`{"id":"6","role":"tool","content":"42"},{"id":"7","role":"assistant","content":"it is 42"}],` +
		`"terminal_event":"RUN_ERROR","error_message":"no answer","error_code":"timeout"}`
	if string(b) != want {
		t.Errorf("artifact\n%s\nwant\n%s", b, want)
	}
	if got, want := jsonOf(t, report), `{"projection":"text-messages-v1","messages":4,`+
		`"leftOut":{"activity":1,"content-parts":1,"no-text":2,"reasoning":1},`+
		`"stripped":{"encryptedValue":1,"metadata":1,"toolCallId":1,"toolCalls":1},"startedAtFrom":"record"}`; got != want {
		t.Errorf("report\n%s\nwant\n%s", got, want)
	}
}

func TestFromEnvelope_TakesTheTimeFromOptionEventOrRecord(t *testing.T) {
	const noTime = `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`
	const withTime = `{"type":"RUN_STARTED","threadId":"t","runId":"r","timestamp":1776193200000}`
	option, record := began.Add(time.Hour), began.Add(time.Minute)
	for name, tc := range map[string]struct {
		started        string
		record, option time.Time
		want           time.Time
		from           string
	}{
		"option": {withTime, record, option, option, artifact.FromOption},
		"event":  {withTime, record, time.Time{}, began, artifact.FromEvent},
		"record": {noTime, record, time.Time{}, record, artifact.FromRecord},
	} {
		t.Run(name, func(t *testing.T) {
			a, report, err := artifact.FromEnvelope([]artifact.Captured{
				{Raw: []byte(tc.started), At: tc.record},
				{Raw: []byte(`{"type":"STATE_SNAPSHOT","snapshot":{}}`)},
				{Raw: []byte(`{"type":"MESSAGES_SNAPSHOT","messages":[]}`)},
				{Raw: []byte(`{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`), At: record.Add(time.Second)},
			}, tc.option)
			if err != nil {
				t.Fatal(err)
			}
			if !a.StartedAt.Equal(tc.want) || report.StartedAtFrom != tc.from || !a.FinishedAt.Equal(record.Add(time.Second)) {
				t.Errorf("%+v, %+v", a, report)
			}
			if report.Events[agui.StateSnapshot] != 1 || len(report.Events) != 1 {
				t.Errorf("dropped events %v", report.Events)
			}
		})
	}
}
